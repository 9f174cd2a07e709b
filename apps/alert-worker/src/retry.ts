import { makeRetry } from '@logpond/db/store-retry';
import { declareCounter } from '@logpond/runtime/metrics';

const failedSteps = declareCounter('logpond_alert_failed_steps_total', {
  help: 'Steps of the alert worker that failed and were tried again',
  labels: ['step'],
});

/** Repeats a step until it succeeds; each failure is logged and counted. @throws as `makeRetry` says. */
export const retry = makeRetry((step) => failedSteps.inc({ step }));
