import { readConfig } from '@logpond/runtime/env';
import { armFailpoints, passFailpoint } from '@logpond/runtime/failpoint';
import { processSettingsShape } from '@logpond/runtime/settings';
import { encodeNativePlan } from '@logpond/log-block/native';
import { z } from 'zod';
import { readBlocksTried, TRIAL_READY } from './trial-frames.ts';
import { tryDecode } from './try-decode.ts';

/**
 * Decodes and encodes the blocks that come on its input, one after the other, and says so of each: a worker starts it
 * to learn which block ends a process (trial.ts). It ends with its input.
 */
armFailpoints(readConfig(z.object({ FAILPOINT: processSettingsShape.FAILPOINT })).FAILPOINT);
process.stdout.write(TRIAL_READY);
for await (const { firstOffset, block } of readBlocksTried(process.stdin)) {
  passFailpoint('W2.decode', String(firstOffset));
  const decoded = tryDecode(block);
  // What is damaged is found again by the worker.
  if (typeof decoded !== 'string')
    encodeNativePlan([{ block: decoded, firstOffset }], { epoch: 1, shard: 0, retentionClassOf: () => 1 });
  process.stdout.write(`${firstOffset}\n`);
}
