import { setTimeout as delay } from 'node:timers/promises';
import { summarizeRefusal } from './clickhouse-error.ts';
import { StoreError } from './store-error.ts';

const BACKOFF_MIN_MS = 100;
const BACKOFF_MAX_MS = 5_000;

/** This owner was replaced, or it is stopping: whatever is left of the shard's work is the next owner's. */
export class ShardGivenBack extends Error {
  override readonly name = 'ShardGivenBack';
}

/** A failure as it may be logged. ClickHouse quotes the values it refuses; a log of ours never holds a customer's. */
type StepFailure = { step: string; tries: number } & ({ refusal: string } | { err: StoreError });

type RetryOptions = {
  /** What is repeated, for errors and failures. */
  step: string;
  /** Aborted when the shard is to be given back. */
  signal: AbortSignal;
  /** Tells after a failure whether repeating is of no use; the failure is then thrown. */
  isHopeless: (error: StoreError) => boolean;
  onFailure: (failure: StepFailure) => void;
};

/**
 * Repeats a step until it succeeds, with growing, jittered pauses of at most 5 s: a store that fails says nothing
 * about the outcome. A step that succeeds is not cut off by the stop of the process, so that what is in hand is
 * written down.
 *
 * @throws {ShardGivenBack} when it failed and the shard is to be given back; else what is no StoreError, or hopeless.
 */
export async function retryStep<T>(run: () => Promise<T>, options: RetryOptions): Promise<T> {
  const { step, signal, isHopeless, onFailure } = options;
  let pauseMs = BACKOFF_MIN_MS;
  for (let tries = 1; ; tries += 1) {
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof StoreError) || isHopeless(error)) throw error;
      if (signal.aborted) throw new ShardGivenBack(`${step} failed while stopping`, { cause: error });
      const cause = error.kind === 'invalid_query' ? { refusal: summarizeRefusal(error) } : { err: error };
      onFailure({ ...cause, step, tries });
    }
    await pause(pauseMs * (0.5 + Math.random() / 2), signal);
    pauseMs = Math.min(pauseMs * 2, BACKOFF_MAX_MS);
  }
}

/** Waits, no longer than until the signal is aborted. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (ms > 0) await delay(ms, undefined, { signal }).catch(() => {});
}
