import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { ClickHouseStore } from './clickhouse.ts';
import type { RedisStore } from './connect.ts';
import { askRedis } from './connect.ts';
import { decodeSeq } from '@logpond/log-block/entry-id';
import type { LogStore } from './log-store.ts';
import { checkSchema, migrateClickHouse } from './migrate.ts';
import { RedisScript } from './redis-script.ts';
import { shardCountKey, shardKeys } from './shard-map.ts';
import { StoreError } from './store-error.ts';

const acquireScript = new RedisScript('log-stream.lua/acquire.lua');
const renewScript = new RedisScript('log-stream.lua/renew.lua');
const prepareScript = new RedisScript('log-stream.lua/prepare.lua');
const preparedScript = new RedisScript('log-stream.lua/prepared.lua');

/** Renewed while the work lasts; a process that dies meanwhile is waited for no longer than this. */
const LEASE_TTL_MS = 3_000;
const RENEW_MS = 500;
const POLL_MS = 250;

/** What was done: names of the migrations applied, and shards in another state than `ready`. */
export type Preparation = { applied: string[]; shards: ShardPreparation[] };

/**
 * `ready`: this server holds all that ClickHouse does. `begun`: it was empty, a new epoch begins. `draining`: it is
 * behind ClickHouse (restored or rolled back); what it holds is stored first, nothing new is admitted. `renewed`:
 * that is done, and the next epoch begins.
 */
export type ShardPreparation = {
  shard: number;
  state: 'ready' | 'begun' | 'draining' | 'renewed';
  epoch: number;
};

/**
 * Makes both stores ready: the schema up to date, each shard with an epoch and compared with ClickHouse. One process
 * at a time does it, the others wait for it; everything in it may be done again, and must be after each start of
 * Redis: until then nothing is admitted. With `onlyWhenNeeded` nothing is done when another process did it meanwhile.
 *
 * @throws {StoreError} `unavailable` when a store cannot be reached; try again.
 */
export async function prepareStores(
  redis: RedisStore,
  clickhouse: ClickHouseStore,
  store: LogStore,
  signal: AbortSignal,
  options: { onlyWhenNeeded?: boolean } = {},
): Promise<Preparation> {
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
    if (options.onlyWhenNeeded === true && !(await isPreparationNeeded(redis)))
      return { applied: [], shards: [] };
    const { applied } = await migrateClickHouse(clickhouse);
    await checkSchema(clickhouse);
    return { applied, shards: await prepareShards(redis, async () => store.findMaxSeqs()) };
  } finally {
    clearInterval(renewal);
    await renewScript.run(redis.client, [key], [holder, 0]);
  }
}

/**
 * Compares each shard with the greatest seq that ClickHouse holds of it (prepare.lua), so that no identity of an
 * entry ever repeats, whatever Redis lost.
 *
 * @throws {StoreError} `unavailable`; also when Redis was restarted while ClickHouse was asked.
 */
export async function prepareShards(
  redis: RedisStore,
  readMaxSeqs: () => Promise<ReadonlyMap<number, bigint>>,
): Promise<ShardPreparation[]> {
  const countKey = shardCountKey(redis.prefix);
  // A server at its memory limit refuses writes, and a worker that starts there must be able to drain it.
  if ((await askRedis(redis.client.get(countKey))) === null)
    await askRedis(redis.client.setnx(countKey, redis.shards));
  // Which server it is has to be known before ClickHouse is asked: what a later one lost would not be seen.
  const runs = await readRuns(redis);
  const maxSeqs = await readMaxSeqs();
  // In a cluster one server may be away: the shards of the others are prepared all the same.
  const outcomes = await Promise.allSettled(
    runs.map(async (read, shard) => {
      if (read.status === 'rejected') throw read.reason;
      return prepareShard(redis, shard, maxSeqs.get(shard) ?? 0n, read.value.run);
    }),
  );
  return outcomes.map((outcome) => {
    if (outcome.status === 'rejected') throw outcome.reason;
    return outcome.value;
  });
}

async function prepareShard(
  redis: RedisStore,
  shard: number,
  maxSeq: bigint,
  run: string,
): Promise<ShardPreparation> {
  const { epoch: storedEpoch, offset } = decodeSeq(maxSeq);
  const { state: key } = shardKeys(redis.prefix, shard);
  const answer = await prepareScript.run(redis.client, [key], [storedEpoch, offset, run]);
  const [state, epoch] = Array.isArray(answer) ? answer.map(String) : [];
  if (state === 'restarted')
    throw new StoreError('redis', 'unavailable', 'Redis was restarted while it was compared with ClickHouse');
  if (state !== 'ready' && state !== 'begun' && state !== 'draining' && state !== 'renewed')
    throw new TypeError(`expected an answer of prepare.lua, got ${JSON.stringify(answer)}`);
  return { shard, state, epoch: Number(epoch) };
}

/** Whether Redis answers and at least one shard may be used, so that batches are taken. Never throws. */
export async function isAdmitting(redis: RedisStore): Promise<boolean> {
  const runs = await readRuns(redis);
  return runs.some((read) => read.status === 'fulfilled' && read.value.state === 'ready');
}

async function isPreparationNeeded(redis: RedisStore): Promise<boolean> {
  const runs = await readRuns(redis);
  return runs.some((read) => read.status === 'rejected' || read.value.state === 'needed');
}

async function readRuns(redis: RedisStore): Promise<PromiseSettledResult<{ state: string; run: string }>[]> {
  const keys = Array.from({ length: redis.shards }, (_, shard) => shardKeys(redis.prefix, shard).state);
  return Promise.allSettled(
    keys.map(async (key) => {
      const answer = await preparedScript.run(redis.client, [key], []);
      const [state = '', run = ''] = Array.isArray(answer) ? answer.map(String) : [];
      return { state, run };
    }),
  );
}

async function acquire(redis: RedisStore, key: string, holder: string): Promise<boolean> {
  return (await acquireScript.run(redis.client, [key], [holder, LEASE_TTL_MS])) === 1;
}
