import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { ClickHouseStore } from './clickhouse.ts';
import type { RedisStore } from './connect.ts';
import { mapRedisError } from './connect.ts';
import type { LogStore } from './log-store.ts';
import { prepareShards } from './log-stream.ts';
import { checkSchema, migrateClickHouse } from './migrate.ts';
import { RedisScript } from './redis-script.ts';

const renewScript = new RedisScript('log-stream.lua/renew.lua');

/** Renewed while the work lasts; a process that dies meanwhile is waited for no longer than this. */
const LEASE_TTL_MS = 3_000;
const RENEW_MS = 500;
const POLL_MS = 250;

/**
 * Makes both stores ready: the schema up to date, each shard with an epoch. One process at a time does it,
 * the others wait for it; everything in it may be done again.
 *
 * @returns the names of the migrations that were applied.
 * @throws {StoreError} `unavailable` when a store cannot be reached; try again.
 */
export async function prepareStores(
  redis: RedisStore,
  clickhouse: ClickHouseStore,
  store: LogStore,
  signal: AbortSignal,
): Promise<string[]> {
  const key = `${redis.prefix}:{cp}:lease:prepare`;
  const holder = randomUUID();
  while (!(await acquire(redis, key, holder))) {
    signal.throwIfAborted();
    await delay(POLL_MS, undefined, { signal });
  }
  // A renewal that fails shows in the work itself: it needs both stores too.
  const renewal = setInterval(() => {
    renewScript.run(redis.client, [key], [holder, LEASE_TTL_MS]).catch(() => undefined);
  }, RENEW_MS);
  try {
    const { applied } = await migrateClickHouse(clickhouse);
    await checkSchema(clickhouse);
    await prepareShards(redis, await store.findMaxSeqs());
    return applied;
  } finally {
    clearInterval(renewal);
    await renewScript.run(redis.client, [key], [holder, 0]);
  }
}

async function acquire(redis: RedisStore, key: string, holder: string): Promise<boolean> {
  try {
    return (await redis.client.set(key, holder, 'PX', LEASE_TTL_MS, 'NX')) === 'OK';
  } catch (error) {
    throw mapRedisError(error);
  }
}
