import { parseTimestampNs } from '@logpond/schema/timestamp';
import type { OutgoingEntry } from './outgoing-entry.ts';
import { putField } from './outgoing-entry.ts';

/**
 * The range of times that the service takes (retention to ten minutes ahead), learned from its
 * refusals. It only saves requests: an entry that is refused is re-dated by its index whether or not
 * the range could be read out of the sentence.
 */
export class TimeWindow {
  readonly #now: () => number;
  #learned: { minNs: bigint; maxNs: bigint; atMs: number } | undefined;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Reads the two times of a sentence such as "expected a time between A (…) and B, got C". */
  learn(sentence: string): void {
    const match = /between (\S+)\b.*? and ([^\s,]+)/.exec(sentence);
    const minNs = match?.[1] ? parseTimestampNs(match[1]) : undefined;
    const maxNs = match?.[2] ? parseTimestampNs(match[2]) : undefined;
    if (minNs !== undefined && maxNs !== undefined && minNs < maxNs)
      this.#learned = { minNs, maxNs, atMs: this.#now() };
  }

  /** True when an entry is known to be refused for its time; both ends move on with the clock. */
  isOutside(entry: OutgoingEntry): boolean {
    if (entry.time === undefined || this.#learned === undefined) return false;
    const timeNs = parseTimestampNs(entry.time);
    if (timeNs === undefined) return false;
    const { minNs, maxNs, atMs } = this.#learned;
    const passedNs = BigInt(Math.max(0, Math.trunc(this.#now() - atMs))) * 1_000_000n;
    return timeNs < minNs + passedNs || timeNs > maxNs + passedNs;
  }
}

/** Leaves the time to the server and keeps the entry's own in its metadata, so that the line arrives whatever its date. */
export function redate(entry: OutgoingEntry): void {
  if (entry.time === undefined) return;
  putField(entry.metadata, 'original_time', entry.time);
  delete entry.time;
}
