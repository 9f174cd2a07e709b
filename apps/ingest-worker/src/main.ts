import { connectClickHouse } from '@logpond/db/clickhouse';
import { connectRedis } from '@logpond/db/connect';
import { ControlStore, installationSecret } from '@logpond/db/control-store';
import { DeadLetters } from '@logpond/db/dead-letters';
import { LogStore } from '@logpond/db/log-store';
import { LogStream } from '@logpond/db/log-stream';
import { prepareStores } from '@logpond/db/prepare';
import { Projects } from '@logpond/db/projects';
import { ShardLeases } from '@logpond/db/shard-leases';
import { StoreError } from '@logpond/db/store-error';
import { maskConfig, readConfig } from '@logpond/runtime/env';
import { armFailpoints } from '@logpond/runtime/failpoint';
import { startMetricsServer } from '@logpond/runtime/metrics';
import { yieldToRequests } from '@logpond/runtime/priority';
import { runProcess } from '@logpond/runtime/run';
import { configSchema, readPacing } from './config.ts';
import { findRetentionClass } from './plan.ts';
import { ownShard } from './shard-owner.ts';
import type { WorkerDeps } from './shard.ts';
import { prepareWhenReachable, reportPreparation } from './stores-ready.ts';

await runProcess('ingest-worker', async ({ signal, stack, log, fail }) => {
  const config = readConfig(configSchema);
  log.level = config.LOG_LEVEL;
  armFailpoints(config.FAILPOINT);
  log.info({ config: maskConfig(config) }, 'starting');
  yieldToRequests();
  stack.use(await startMetricsServer(config.METRICS_PORT, config.METRICS_HOST));
  const redis = stack.use(await connectRedis(config));
  const clickhouse = stack.use(connectClickHouse(config));
  const control = new ControlStore(redis);
  const store = new LogStore(clickhouse, { cursorSecret: await installationSecret(control) });
  const projects = new Projects(control);
  await prepareWhenReachable(async () => prepareStores(redis, clickhouse, store, signal), signal, log);
  if (signal.aborted) return;
  const deps: WorkerDeps = {
    redis,
    clickhouse,
    store,
    log,
    now: Date.now,
    stream: await LogStream.open(redis),
    deadLetters: new DeadLetters(redis),
    findRetentionClass: async (projectId) => findRetentionClass(projects, projectId),
    ...readPacing(config),
  };
  const leases = stack.use(
    new ShardLeases({
      redis,
      consumer: 'ingest',
      onError: (error) =>
        error instanceof StoreError ? log.warn({ err: error }, 'a lease could not be kept') : fail(error),
      onUnprepared: async () =>
        reportPreparation(
          await prepareStores(redis, clickhouse, store, signal, { onlyWhenNeeded: true }),
          log,
        ),
      work: async (ownership, lost) => ownShard(ownership, deps, lost),
    }),
  );
  leases.start();
});
