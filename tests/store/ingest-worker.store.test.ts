import { connectRedis } from '@logpond/db/connect';
import { LogStream } from '@logpond/db/log-stream';
import { shardKeys } from '@logpond/db/shard-map';
import { readStreamEnd } from '@logpond/db/stream-end';
import { BlockEncoder } from '@logpond/log-block/encode';
import type { EncodedBlock } from '@logpond/log-block/encode';
import { expect, it } from 'vitest';
import { startApp } from '../support/app-process.ts';
import { startStores } from '../support/stores.ts';
import { waitFor } from '../support/wait.ts';
import { passAlertCursor } from './stream-fixture.ts';

const BUDGET_BYTES = 16_777_216;
/** Its own entries would move the offsets that these tests look at. */
const WITHOUT_CANARY = { CANARY_INTERVAL_MS: '0' };
const PROJECT = '0190a5e0-0000-7000-8000-000000000001';

/** Messages of one character repeated: inflated `length` bytes an entry, stored next to nothing. */
function makeBlock(rows: number, length: number): EncodedBlock {
  const encoder = new BlockEncoder();
  const nowMs = Date.now();
  encoder.beginRun(PROJECT, nowMs);
  const entry = { timeNs: BigInt(nowMs) * 1_000_000n, level: 2, service: 'web', message: 'm'.repeat(length) };
  for (let row = 0; row < rows; row += 1) encoder.appendEntry({ ...entry, metadataJson: '{}' });
  encoder.endRun(rows * length);
  return encoder.finish(nowMs);
}

it('a stream that filled up while the alert worker was away admits again once it is back', async () => {
  await using stores = await startStores({ shards: 1 });
  const env = { ...stores.env, ...WITHOUT_CANARY, REDIS_BUDGET_BYTES: String(BUDGET_BYTES) };
  await using worker = startApp('ingest-worker', env);
  const settings = {
    REDIS_URL: stores.redis.url,
    KEY_PREFIX: 'lp',
    SHARDS: 1,
    REDIS_BUDGET_BYTES: BUDGET_BYTES,
  };
  await using redis = await connectRedis(settings);
  const keys = shardKeys('lp', 0);
  const stream = await LogStream.open(redis);
  await waitFor('the shard', async () => (await redis.client.hget(keys.state, 'epoch')) !== null);

  const block = makeBlock(1, 10);
  await stream.admit(0, block);
  const isStored = async (): Promise<boolean> => {
    const [done, next] = await redis.client.hmget(keys.state, 'ingest:done', 'next');
    return done === next;
  };
  await waitFor('the entry stored', isStored);
  // As if what is stored already had filled the stream; the alert cursor is still at the beginning.
  await redis.client.hset(keys.state, 'bytesIn', BUDGET_BYTES, 'ingest:bytes', BUDGET_BYTES);
  await redis.client.del(keys.marks);
  await redis.client.rpush(keys.marks, `2 ${Date.now()} ${BUDGET_BYTES}`);
  expect(await stream.admit(0, block)).toMatchObject({ kind: 'full' });

  const { next } = await readStreamEnd(redis, 0);
  await passAlertCursor(redis, next);
  await waitFor('room', async () => (await stream.admit(0, block)).kind === 'stored', 10_000);
  expect(worker.child.exitCode).toBeNull();
});

it('a plan of entries that shrink 200-fold in the stream stays within the memory of a worker', async () => {
  await using stores = await startStores({ shards: 1 });
  const settings = {
    REDIS_URL: stores.redis.url,
    KEY_PREFIX: 'lp',
    SHARDS: 1,
    REDIS_BUDGET_BYTES: BUDGET_BYTES,
  };
  await using redis = await connectRedis(settings);
  const keys = shardKeys('lp', 0);
  const stream = await LogStream.open(redis);
  {
    await using _first = startApp('ingest-worker', { ...stores.env, ...WITHOUT_CANARY });
    await waitFor('the shard', async () => (await redis.client.hget(keys.state, 'epoch')) !== null);
  }
  // 40 MB each inflated, 800 MB together: a twentieth of what 250,000 entries of 64 KB would be.
  for (let blocks = 0; blocks < 20; blocks += 1) await stream.admit(0, makeBlock(1_000, 40_000));
  await using _worker = startApp('ingest-worker', { ...stores.env, ...WITHOUT_CANARY });
  const plan = await waitFor(
    'a plan',
    async () => (await redis.client.hget(keys.state, 'ingest:plan')) ?? undefined,
  );
  expect(JSON.parse(plan)).toMatchObject({ from: 1, to: 4_001 });
});

it('a Redis that is emptied while the worker runs is prepared again', async () => {
  await using stores = await startStores({ shards: 1 });
  await using worker = startApp('ingest-worker', { ...stores.env, ...WITHOUT_CANARY });
  const settings = {
    REDIS_URL: stores.redis.url,
    KEY_PREFIX: 'lp',
    SHARDS: 1,
    REDIS_BUDGET_BYTES: BUDGET_BYTES,
  };
  await using redis = await connectRedis(settings);
  const { state } = shardKeys('lp', 0);
  const stream = await LogStream.open(redis);
  await waitFor('the shard', async () => (await redis.client.hget(state, 'epoch')) !== null);
  await redis.client.flushall();
  await waitFor('a stored block', async () => (await stream.admit(0, makeBlock(1, 10))).kind === 'stored');
  await waitFor('the commit', async () => (await redis.client.hget(state, 'ingest:done')) === '2');
  expect(worker.child.exitCode).toBeNull();
});

it('a worker that still waits for its stores stops at once when told to', async () => {
  await using worker = startApp('ingest-worker', { REDIS_URL: 'redis://127.0.0.1:1', REDIS_URL_FILE: '' });
  await waitFor('the start', () => worker.output().includes('"msg":"starting"'));
  const toldAt = performance.now();
  expect(await worker.stop()).toBe(0);
  expect(performance.now() - toldAt).toBeLessThan(5_000);
});
