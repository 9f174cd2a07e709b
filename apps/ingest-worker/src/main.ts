import { connectClickHouse } from '@logpond/db/clickhouse';
import { connectRedis } from '@logpond/db/connect';
import { ControlStore, installationSecret } from '@logpond/db/control-store';
import { LogCursor } from '@logpond/db/log-cursor';
import { LogStore } from '@logpond/db/log-store';
import { prepareStores } from '@logpond/db/prepare';
import { Projects } from '@logpond/db/projects';
import { ShardLeases } from '@logpond/db/shard-leases';
import { StoreError } from '@logpond/db/store-error';
import { maskConfig, readConfig } from '@logpond/runtime/env';
import { startMetricsServer } from '@logpond/runtime/metrics';
import { runProcess } from '@logpond/runtime/run';
import { configSchema } from './config.ts';
import { toRetentionClass } from './plan.ts';
import { prepareWhenReachable } from './stores-ready.ts';
import { writeShard } from './writer.ts';

/** What a deleted project's last entries are kept for; nobody can read them any more. */
const ORPHAN_RETENTION_DAYS = 1;

await runProcess('ingest-worker', async ({ signal, stack, log, fail }) => {
  const config = readConfig(configSchema);
  log.level = config.LOG_LEVEL;
  log.info({ config: maskConfig(config) }, 'starting');
  stack.use(await startMetricsServer(config.METRICS_PORT, config.METRICS_HOST));
  const redis = stack.use(await connectRedis(config));
  const clickhouse = stack.use(connectClickHouse(config));
  const control = new ControlStore(redis);
  const store = new LogStore(clickhouse, { cursorSecret: await installationSecret(control) });
  const projects = new Projects(control);
  const retentionClassOf = async (projectId: string): Promise<number> =>
    toRetentionClass((await projects.find(projectId))?.retentionDays ?? ORPHAN_RETENTION_DAYS);
  const flush = {
    intervalMs: config.FLUSH_INTERVAL_MS,
    rowsMax: config.FLUSH_ROWS_MAX,
    bytesMax: config.FLUSH_BYTES_MAX,
  };

  const prepare = async (): Promise<string[]> => prepareStores(redis, clickhouse, store, signal);
  await prepareWhenReachable(prepare, signal, log);
  if (signal.aborted) return;
  const leases = stack.use(
    new ShardLeases({
      redis,
      consumer: 'ingest',
      onError: (error) =>
        error instanceof StoreError ? log.warn({ err: error }, 'a lease could not be kept') : fail(error),
      onUnprepared: async () => void (await prepare()),
      work: async (ownership, lost) => {
        using cursor = await LogCursor.open(redis, 'ingest', ownership);
        lost.addEventListener('abort', () => cursor[Symbol.dispose](), { once: true });
        log.info({ shard: ownership.shard, fence: ownership.fence, done: ownership.done }, 'took a shard');
        await writeShard(cursor, ownership, { store, retentionClassOf, log, now: Date.now, flush }, lost);
        log.info({ shard: ownership.shard }, 'gave a shard back');
      },
    }),
  );
  leases.start();
});
