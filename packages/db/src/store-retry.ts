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

/** What a step needs to be repeated. `signal`: aborted when the shard is to be given back. */
type RetryScope = {
  log: { warn: (failure: StepFailure, message: string) => void };
  signal: AbortSignal;
};

/** Repeats a step; see makeRetry. */
type Retry = <T>(
  scope: RetryScope,
  step: string,
  run: () => Promise<T>,
  isHopeless?: (error: StoreError) => boolean,
) => Promise<T>;

/**
 * A worker's way to repeat a step until it succeeds, with growing, jittered pauses of at most 5 s: a store that fails
 * says nothing about the outcome. A step that succeeds is not cut off by the stop of the process, so that what is in
 * hand is written down. Each failure is logged and counted.
 *
 * Its `isHopeless` tells after a failure whether repeating is of no use; the failure is then thrown. It throws
 * ShardGivenBack when a step failed and the shard is to be given back, and what is no StoreError.
 */
export function makeRetry(countFailure: (step: string) => void): Retry {
  return async ({ log, signal }, step, run, isHopeless = () => false) =>
    retryStep(run, {
      step,
      signal,
      isHopeless,
      onFailure: (failure) => {
        countFailure(step);
        log.warn(failure, 'a step failed');
      },
    });
}

type RetryOptions = {
  step: string;
  signal: AbortSignal;
  isHopeless: (error: StoreError) => boolean;
  onFailure: (failure: StepFailure) => void;
};

async function retryStep<T>(run: () => Promise<T>, options: RetryOptions): Promise<T> {
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
