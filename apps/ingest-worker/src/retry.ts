import { makeRetry } from '@logpond/db/store-retry';
import { declareCounter } from '@logpond/runtime/metrics';

const failedSteps = declareCounter('logpond_ingest_failed_steps_total', {
  help: 'Steps that failed and were tried again',
  labels: ['step'],
});

/** Repeats a step until it succeeds; each failure is logged and counted. @throws as `makeRetry` says. */
export const retry = makeRetry((step) => failedSteps.inc({ step }));
