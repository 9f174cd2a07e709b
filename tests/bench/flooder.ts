import { parentPort, workerData } from 'node:worker_threads';
import { sendPaced } from '../system/support/chaos-pace.ts';
import type { PaceOptions } from '../system/support/chaos-pace.ts';

/** A sender in a thread of its own, so that the load it makes does not delay the clock that measures the others. */
const result = await sendPaced(workerData as PaceOptions);
// The thousands of times of what it got stored interest nobody.
parentPort?.postMessage({ ...result, acknowledged: [] });
