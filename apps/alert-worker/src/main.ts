import { setTimeout as delay } from 'node:timers/promises';
import { connectRedis } from '@logpond/db/connect';
import { LogCursor } from '@logpond/db/log-cursor';
import { ShardLeases } from '@logpond/db/shard-leases';
import { StoreError } from '@logpond/db/store-error';
import { maskConfig, readConfig } from '@logpond/runtime/env';
import { armFailpoints } from '@logpond/runtime/failpoint';
import { startMetricsServer } from '@logpond/runtime/metrics';
import { yieldToRequests } from '@logpond/runtime/priority';
import { runProcess } from '@logpond/runtime/run';
import { configSchema } from './config.ts';

const ADVANCE_MS = 1_000;

/**
 * Follows every shard with a cursor of its own, beside the ingest worker's. No rule is evaluated yet, so
 * nothing is read: the cursor goes to the end of the stream once a second, and trimming may follow it.
 */
await runProcess('alert-worker', async ({ stack, log, fail }) => {
  const config = readConfig(configSchema);
  armFailpoints(config.FAILPOINT);
  log.level = config.LOG_LEVEL;
  log.info({ config: maskConfig(config) }, 'starting');
  yieldToRequests();
  stack.use(await startMetricsServer(config.METRICS_PORT, config.METRICS_HOST));
  const redis = stack.use(await connectRedis(config));
  const leases = stack.use(
    new ShardLeases({
      redis,
      consumer: 'alert',
      onError: (error) =>
        error instanceof StoreError ? log.warn({ err: error }, 'a lease could not be kept') : fail(error),
      work: async (ownership, lost) => {
        using cursor = await LogCursor.open(redis, 'alert', ownership);
        log.info({ shard: ownership.shard, fence: ownership.fence }, 'took a shard');
        while (!lost.aborted && (await cursor.advanceToEnd())) {
          await delay(ADVANCE_MS, undefined, { signal: lost }).catch(() => {});
        }
      },
    }),
  );
  leases.start();
});
