import { summarizeRefusal } from '@logpond/db/clickhouse-error';
import type { StoreError } from '@logpond/db/store-error';
import { retryStep } from '@logpond/db/store-retry';
import type { Log } from '@logpond/runtime/log';
import { declareCounter } from '@logpond/runtime/metrics';

/** What a step needs to be repeated. */
type RetryScope = { log: Log; signal: AbortSignal };

/**
 * Repeats a step until it succeeds; each failure is logged and counted.
 *
 * @param isHopeless tells after a failure whether repeating is of no use; the failure is then thrown.
 * @throws {ShardGivenBack} when it failed and the shard is to be given back.
 */
export async function retry<T>(
  { log, signal }: RetryScope,
  step: string,
  run: () => Promise<T>,
  isHopeless: (error: StoreError) => boolean = () => false,
): Promise<T> {
  const onFailure = (error: StoreError, tries: number): void => {
    failedSteps.inc({ step });
    // ClickHouse quotes the values it refuses; a log of ours never holds a customer's.
    const cause = error.kind === 'invalid_query' ? { refusal: summarizeRefusal(error) } : { err: error };
    log.warn({ ...cause, step, tries }, 'a step failed');
  };
  return retryStep(run, { step, signal, isHopeless, onFailure });
}

const failedSteps = declareCounter('logpond_alert_failed_steps_total', {
  help: 'Steps of the alert worker that failed and were tried again',
  labels: ['step'],
});
