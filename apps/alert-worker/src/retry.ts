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
  return retryStep(run, {
    step,
    signal,
    isHopeless,
    onFailure: (failure) => {
      failedSteps.inc({ step });
      log.warn(failure, 'a step failed');
    },
  });
}

const failedSteps = declareCounter('logpond_alert_failed_steps_total', {
  help: 'Steps of the alert worker that failed and were tried again',
  labels: ['step'],
});
