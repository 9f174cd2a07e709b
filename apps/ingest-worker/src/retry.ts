import { setTimeout as delay } from 'node:timers/promises';
import { StoreError } from '@logpond/db/store-error';
import { summarizeRefusal } from '@logpond/db/clickhouse-error';
import type { Log } from '@logpond/runtime/log';
import { declareCounter } from '@logpond/runtime/metrics';

const BACKOFF_MIN_MS = 100;
const BACKOFF_MAX_MS = 5_000;

/** This owner was replaced, or it is stopping: whatever is left of the shard's work is the next owner's. */
export class ShardGivenBack extends Error {
  override readonly name = 'ShardGivenBack';
}

/** What a step needs to be repeated. */
export type RetryScope = { log: Log; signal: AbortSignal };

/**
 * Repeats a step until it succeeds, with growing, jittered pauses of at most 5 s: a store that fails says nothing
 * about the outcome. A step that succeeds is not cut off by the stop of the process, so that what is in hand is
 * committed.
 *
 * @param isHopeless tells after a failure whether repeating is of no use; the failure is then thrown.
 * @throws {ShardGivenBack} when it failed and the shard is to be given back.
 */
export async function retry<T>(
  scope: RetryScope,
  step: string,
  run: () => Promise<T>,
  isHopeless: (error: StoreError) => boolean = () => false,
): Promise<T> {
  let pauseMs = BACKOFF_MIN_MS;
  for (let tries = 1; ; tries += 1) {
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      if (isHopeless(error)) throw error;
      if (scope.signal.aborted) throw new ShardGivenBack(`${step} failed while stopping`, { cause: error });
      failedSteps.inc({ step });
      // ClickHouse quotes the values it refuses; a log of ours never holds a customer's.
      const cause = error.kind === 'invalid_query' ? { refusal: summarizeRefusal(error) } : { err: error };
      scope.log.warn({ ...cause, step, tries }, 'a step failed');
    }
    await pause(pauseMs * (0.5 + Math.random() / 2), scope.signal);
    pauseMs = Math.min(pauseMs * 2, BACKOFF_MAX_MS);
  }
}

/** Waits, no longer than until the signal is aborted. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (ms > 0) await delay(ms, undefined, { signal }).catch(() => {});
}

const failedSteps = declareCounter('logpond_ingest_failed_steps_total', {
  help: 'Steps that failed and were tried again',
  labels: ['step'],
});
