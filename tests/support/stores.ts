import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { spawnClickHouse } from '@logpond/standalone/clickhouse-process';
import { spawnRedis } from '@logpond/standalone/redis';

/** A real redis-server and a real ClickHouse engine of one test file's own. */
export type TestStores = AsyncDisposable & {
  redis: Awaited<ReturnType<typeof spawnRedis>>;
  clickhouse: Awaited<ReturnType<typeof spawnClickHouse>>;
  dataDir: string;
  /** The environment that points an app at these stores. */
  env: Record<string, string>;
};

/** Starts both stores on free loopback ports in a new directory; disposing stops them and removes it. */
export async function startStores(options: { shards?: number } = {}): Promise<TestStores> {
  const dataDir = await mkdtemp(join(tmpdir(), 'logpond-test-'));
  const [redis, clickhouse] = await Promise.all([
    spawnRedis({ dataDir: join(dataDir, 'redis') }),
    spawnClickHouse({ dataDir: join(dataDir, 'clickhouse') }),
  ]);
  return {
    redis,
    clickhouse,
    dataDir,
    env: {
      REDIS_URL: redis.url,
      CLICKHOUSE_URL: clickhouse.url,
      CLICKHOUSE_USER: clickhouse.user,
      CLICKHOUSE_PASSWORD: clickhouse.password,
      SHARDS: String(options.shards ?? 2),
      // Entries of the product's own would shift the offsets that tests count.
      CANARY_INTERVAL_MS: '0',
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([redis.stop(), clickhouse.stop()]);
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}
