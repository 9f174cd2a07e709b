/**
 * The sliding window of a rule, and when it fires.
 *
 * Time is cut into buckets of `bucketS` seconds; bucket `b` is [b · bucketS, (b + 1) · bucketS). `span` buckets touch
 * the window. The clock `c` is the greatest bucket in which a counted entry was *received*; no other clock is read, so
 * the same entries give the same firings whenever they are counted. `sum(k)` is what the buckets k − span + 1 … k hold.
 *
 *   ok ──── an entry makes sum(c) ≥ threshold ────▶ firing since the start of bucket c
 *   ok ◀─── a bucket k ends (the clock passes it) with sum(k) < threshold ──── firing; resolved at the end of bucket k
 *
 * Within a bucket sums only grow, and what arrives in a later bucket is not looked at when an earlier one ends. So the
 * firings follow from the counts per (bucket received in, bucket counted into) alone: order within a bucket, and in
 * how many parts it is counted, change nothing of start, end and peak.
 */
import type { AlertCondition } from '@logpond/schema/alert-condition';
import { parseDurationMs } from '@logpond/schema/duration';

/** Entries further ahead of their own reception than this are not counted. */
export const FUTURE_MAX_S = 60;
/** A window is cut into at most this many buckets. */
const BUCKETS_MAX = 300;
const DAY_S = 86_400;

/** `span`: buckets of `bucketS` seconds that touch the window. */
export type WindowSpec = { threshold: number; bucketS: number; span: number };

/** `count` is the sum at that moment; seconds since 1970, `startedAtS` and `resolvedAtS` are limits of buckets. */
export type Transition =
  | { kind: 'fired'; startedAtS: number; count: number }
  | { kind: 'resolved'; startedAtS: number; resolvedAtS: number; peak: number; count: number };

/** Matching entries of one second (`second`, of their `time`) that were received in another. */
export type CountItem = { second: number; receivedSecond: number; count: number };

/**
 * The window of a condition. A bucket is a 300th of it, at least a second, rounded up to a divisor of a day (of which
 * the divisors of a minute and of an hour are some).
 *
 * @throws {RangeError} when the duration is none (it was checked with the rule).
 */
export function readWindowSpec(condition: Pick<AlertCondition, 'threshold' | 'timeWindow'>): WindowSpec {
  const windowMs = parseDurationMs(condition.timeWindow);
  if (windowMs === undefined) throw new RangeError(`expected a duration, got ${condition.timeWindow}`);
  const windowS = Math.ceil(windowMs / 1000);
  let bucketS = Math.max(1, Math.ceil(windowS / BUCKETS_MAX));
  while (bucketS < DAY_S && DAY_S % bucketS !== 0) bucketS += 1;
  return { threshold: condition.threshold, bucketS, span: Math.ceil(windowS / bucketS) + 1 };
}

const BUCKET_FIELD = /^b(-?\d+)$/;

/** A rule's window. Between calls of `takeChanges` it lives in memory only. */
export class SlidingWindow {
  readonly #spec: WindowSpec;
  /** The buckets that the window touches at the clock, without empty ones. */
  readonly #buckets = new Map<number, number>();
  /** Buckets that differ from what is stored. */
  readonly #changed = new Set<number>();
  #isChanged = false;
  #clock: number | undefined;
  #sum = 0;
  #startedAtS: number | undefined;
  #peak = 0;
  #counted = 0;

  /**
   * An empty window, or the one whose `takeChanges` were stored. Fields of other names are not looked at.
   *
   * @throws {RangeError} when a field holds no whole number.
   */
  constructor(spec: WindowSpec, stored: Readonly<Record<string, string>> = {}) {
    this.#spec = spec;
    this.#clock = readField(stored, 'clock');
    this.#startedAtS = readField(stored, 'startedAt');
    this.#peak = readField(stored, 'peak') ?? 0;
    this.#counted = readField(stored, 'counted') ?? 0;
    for (const name of Object.keys(stored)) {
      const bucket = BUCKET_FIELD.exec(name)?.[1];
      const count = bucket === undefined ? undefined : readField(stored, name);
      if (bucket === undefined || count === undefined) continue;
      this.#buckets.set(Number(bucket), count);
      this.#sum += count;
    }
  }

  get isFiring(): boolean {
    return this.#startedAtS !== undefined;
  }

  /** While firing: the start of the bucket in which it began, seconds since 1970. */
  get startedAtS(): number | undefined {
    return this.#startedAtS;
  }

  /** Entries in the window at its clock. */
  get sum(): number {
    return this.#sum;
  }

  /** While firing: the greatest sum so far; else 0. */
  get peak(): number {
    return this.#peak;
  }

  /** All entries that were counted, in or out of today's window: neither too old nor too far ahead on arrival. */
  get counted(): number {
    return this.#counted;
  }

  /** Whether it neither fires nor holds an entry; it may still have stored fields. */
  get isEmpty(): boolean {
    return this.#buckets.size === 0 && this.#startedAtS === undefined;
  }

  /**
   * Counts entries. One received in a bucket before the clock counts as far as its bucket still touches the window.
   * Work is bounded by `span`, however far the clock jumps.
   */
  count({ second, receivedSecond, count }: CountItem): Transition[] {
    const received = this.#bucketOf(receivedSecond);
    const bucket = Math.min(this.#bucketOf(second), received);
    const isTooOld = bucket < received - (this.#spec.span - 1);
    if (count <= 0 || isTooOld || second > receivedSecond + FUTURE_MAX_S) return [];
    const transitions = this.#passTo(received);
    this.#counted += count;
    this.#isChanged = true;
    if (bucket > (this.#clock ?? received) - this.#spec.span) this.#add(bucket, count);
    if (this.#startedAtS === undefined && this.#sum >= this.#spec.threshold) {
      this.#startedAtS = (this.#clock ?? received) * this.#spec.bucketS;
      transitions.push({ kind: 'fired', startedAtS: this.#startedAtS, count: this.#sum });
    }
    if (this.#startedAtS !== undefined) this.#peak = Math.max(this.#peak, this.#sum);
    return transitions;
  }

  /**
   * Ends the buckets that ended at or before `nowS`, where nothing more can arrive in them. A window that does not
   * fire is left as it is: without an entry nothing comes of it, and nothing has to be stored.
   */
  tick(nowS: number): Transition[] {
    const now = this.#bucketOf(nowS);
    return this.isFiring && this.#clock !== undefined && now > this.#clock ? this.#passTo(now) : [];
  }

  /** Fields to be set and unset in what is stored, since the last call; undefined when there are none. */
  takeChanges(): { set: Record<string, string>; unset: string[] } | undefined {
    if (!this.#isChanged) return undefined;
    const set: Record<string, string> = { counted: String(this.#counted) };
    const unset: string[] = [];
    for (const bucket of this.#changed) {
      const count = this.#buckets.get(bucket);
      if (count === undefined) unset.push(`b${bucket}`);
      else set[`b${bucket}`] = String(count);
    }
    if (this.#clock !== undefined) set['clock'] = String(this.#clock);
    if (this.#startedAtS === undefined) unset.push('startedAt', 'peak');
    else Object.assign(set, { startedAt: String(this.#startedAtS), peak: String(this.#peak) });
    this.#changed.clear();
    this.#isChanged = false;
    return { set, unset };
  }

  #bucketOf(second: number): number {
    return Math.floor(second / this.#spec.bucketS);
  }

  #add(bucket: number, count: number): void {
    this.#buckets.set(bucket, (this.#buckets.get(bucket) ?? 0) + count);
    this.#changed.add(bucket);
    this.#sum += count;
  }

  /** Moves the clock on, never back; a firing rule resolves at the end of the first bucket whose sum is too small. */
  #passTo(clock: number): Transition[] {
    const from = this.#clock;
    if (from !== undefined && clock <= from) return [];
    const transitions: Transition[] = [];
    if (from !== undefined) {
      // After `span` buckets without an entry every sum is zero.
      const last = Math.min(clock - 1, from + this.#spec.span);
      for (let ended = from; ended <= last; ended += 1) {
        this.#drop(ended - this.#spec.span);
        if (this.#resolveAt(ended, transitions)) break;
      }
      this.#dropUpTo(clock - this.#spec.span);
    }
    this.#clock = clock;
    this.#isChanged = true;
    return transitions;
  }

  #resolveAt(ended: number, transitions: Transition[]): boolean {
    if (this.#startedAtS === undefined || this.#sum >= this.#spec.threshold) return false;
    const resolvedAtS = (ended + 1) * this.#spec.bucketS;
    const { startedAtS, peak } = { startedAtS: this.#startedAtS, peak: this.#peak };
    transitions.push({ kind: 'resolved', startedAtS, resolvedAtS, peak, count: this.#sum });
    this.#startedAtS = undefined;
    this.#peak = 0;
    return true;
  }

  #drop(bucket: number): void {
    const count = this.#buckets.get(bucket);
    if (count === undefined) return;
    this.#buckets.delete(bucket);
    this.#changed.add(bucket);
    this.#sum -= count;
  }

  #dropUpTo(last: number): void {
    for (const bucket of this.#buckets.keys()) if (bucket <= last) this.#drop(bucket);
  }
}

function readField(stored: Readonly<Record<string, string>>, name: string): number | undefined {
  const text = stored[name];
  if (text === undefined) return undefined;
  const value = Number(text);
  if (text === '' || !Number.isSafeInteger(value)) {
    throw new RangeError(`field ${name} of a window: expected a whole number, got ${text}`);
  }
  return value;
}

/**
 * What a rule would have done, decided by the same window. `counts` come ordered by the bucket they were received in;
 * what was received before `fromS` only fills the window: firings that were over by then are left out. Buckets that
 * ended at or before `untilS` are ended. `maxCount`: the greatest sum there was since `fromS`, firing or not.
 */
export function replayWindow(
  spec: WindowSpec,
  counts: Iterable<CountItem>,
  { fromS = -Infinity, untilS }: { fromS?: number; untilS: number },
): { firings: { startedAtS: number; resolvedAtS: number | null; peak: number }[]; maxCount: number } {
  const window = new SlidingWindow(spec);
  const firings: { startedAtS: number; resolvedAtS: number | null; peak: number }[] = [];
  const resolve = (transitions: readonly Transition[]): void => {
    for (const transition of transitions) {
      if (transition.kind === 'fired') continue;
      const { startedAtS, resolvedAtS, peak } = transition;
      if (resolvedAtS > fromS) firings.push({ startedAtS, resolvedAtS, peak });
    }
  };
  let maxCount = 0;
  for (const item of counts) {
    resolve(window.count(item));
    if (item.receivedSecond >= fromS) maxCount = Math.max(maxCount, window.sum);
  }
  resolve(window.tick(untilS));
  if (window.startedAtS !== undefined) {
    firings.push({ startedAtS: window.startedAtS, resolvedAtS: null, peak: window.peak });
  }
  return { firings, maxCount };
}
