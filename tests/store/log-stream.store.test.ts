import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connectRedis } from '@logpond/db/connect';
import type { RedisStore } from '@logpond/db/connect';
import { LogCursor } from '@logpond/db/log-cursor';
import type { Ownership } from '@logpond/db/log-cursor';
import { LogStream, prepareShards } from '@logpond/db/log-stream';
import { RedisScript } from '@logpond/db/redis-script';
import { shardKeys } from '@logpond/db/shard-map';
import { readTailRange, ShardTail } from '@logpond/db/tail';
import { BlockEncoder } from '@logpond/log-block/encode';
import type { EncodedBlock } from '@logpond/log-block/encode';
import { encodeSeq } from '@logpond/log-block/entry-id';
import { spawnRedis } from '@logpond/standalone/redis';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';

const PROJECT = '0190a5e0-0000-7000-8000-000000000001';
const OTHER = '0190a5e0-0000-7000-8000-000000000002';
const NOW_MS = 1_790_000_000_000;
const WIDE = { rowsMax: 1e6, bytesMax: 1e6, rawBytesMax: 1e6 };

let dataDir: string;
let server: Awaited<ReturnType<typeof spawnRedis>>;
let prefixes = 0;
let redis: RedisStore;
let stream: LogStream;

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'logpond-stream-'));
  server = await spawnRedis({ dataDir });
});
afterAll(async () => {
  await server.stop();
  await rm(dataDir, { recursive: true });
});

function settings(budgetBytes = 268_435_456): Parameters<typeof connectRedis>[0] {
  return { REDIS_URL: server.url, KEY_PREFIX: `t${prefixes}`, SHARDS: 1, REDIS_BUDGET_BYTES: budgetBytes };
}

beforeEach(async () => {
  prefixes += 1;
  redis = await connectRedis(settings());
  await prepareShards(redis, new Map());
  stream = await LogStream.open(redis);
  return async () => redis[Symbol.asyncDispose]();
});

function makeBlock(rows: number, projectId = PROJECT): EncodedBlock {
  const encoder = new BlockEncoder();
  encoder.beginRun(projectId, NOW_MS);
  for (let row = 0; row < rows; row += 1) {
    const entry = { timeNs: BigInt(NOW_MS) * 1_000_000n, level: 2, service: 'web', message: `entry ${row}` };
    encoder.appendEntry({ ...entry, metadataJson: '{}' });
  }
  encoder.endRun(rows * 100);
  return encoder.finish(NOW_MS);
}

const own = new RedisScript('log-stream.lua/own.lua');

/** Takes shard 0 as if no lease were there: what a worker does whose clock or pause made the lease lie. */
async function forceOwnership(consumer: 'ingest' | 'alert' = 'ingest'): Promise<Ownership> {
  const keys = shardKeys(redis.prefix, 0);
  await redis.client.del(keys.lease(consumer));
  const answer = await own.run(redis.client, [keys.lease(consumer), keys.state], [consumer, 'test', 60_000]);
  const [kind, fence = '', epoch, done, plan] = (answer as string[]).map(String);
  expect(kind).toBe('taken');
  return { shard: 0, fence, epoch: Number(epoch), done: Number(done), plan: plan || undefined };
}

describe('admit', () => {
  it('numbers entries densely from 1, so that a stream id is the offset of the first entry', async () => {
    const offsets = [];
    for (const rows of [3, 1, 5]) offsets.push(await stream.admit(0, makeBlock(rows)));
    expect(offsets).toEqual([3, 1, 5].map((_, index) => ({ kind: 'stored', firstOffset: [1, 4, 5][index] })));
    const keys = shardKeys(redis.prefix, 0);
    expect((await redis.client.xrange(keys.log, '-', '+')).map(([id]) => id)).toEqual(['1-0', '4-0', '5-0']);
    expect(await redis.client.hget(keys.state, 'next')).toBe('10');
  });

  it('stores a key once: the same body gets the first receipt, another body is a mismatch', async () => {
    const first = { projectId: PROJECT, key: 'k', bodyHash: 'a', receipt: '{"received":1}' };
    expect((await stream.admit(0, makeBlock(1), first)).kind).toBe('stored');
    const again = await stream.admit(0, makeBlock(1), { ...first, receipt: '{"received":2}' });
    expect(again).toEqual({ kind: 'replayed', receipt: '{"received":1}' });
    expect(await stream.admit(0, makeBlock(1), { ...first, bodyHash: 'b' })).toEqual({ kind: 'mismatch' });
    expect((await stream.admit(0, makeBlock(1), { ...first, projectId: OTHER })).kind).toBe('stored');
    expect(await redis.client.xlen(shardKeys(redis.prefix, 0).log)).toBe(2);
  });

  it('stores a key once when a hundred requests with it race', async () => {
    const key = { projectId: PROJECT, key: 'race', bodyHash: 'a', receipt: '{}' };
    const kinds = await Promise.all(
      Array.from({ length: 100 }, async () => (await stream.admit(0, makeBlock(1), key)).kind),
    );
    expect(kinds.filter((kind) => kind === 'stored')).toHaveLength(1);
    expect(kinds.filter((kind) => kind === 'replayed')).toHaveLength(99);
  });

  it('refuses what would go over the budget and stores nothing of it', async () => {
    await using small = await connectRedis(settings(16_777_216));
    const narrow = await LogStream.open(small);
    const keys = shardKeys(redis.prefix, 0);
    await redis.client.hset(keys.state, 'bytesIn', 13_500_000);
    expect(await narrow.admit(0, makeBlock(100))).toEqual({ kind: 'full' });
    expect(await redis.client.xlen(keys.log)).toBe(0);
  });

  it('another number of shards is refused at start: what waits in a left stream would never be stored', async () => {
    await expect(connectRedis({ ...settings(), SHARDS: 2 })).rejects.toThrow('SHARDS: expected 1');
  });

  it('is unavailable before the shard has its epoch', async () => {
    prefixes += 1;
    await using bare = await connectRedis(settings());
    const unprepared = await LogStream.open(bare);
    await expect(unprepared.admit(0, makeBlock(1))).rejects.toMatchObject({ kind: 'unavailable' });
  });

  it('an emptied Redis goes on one epoch above what ClickHouse holds, and an epoch in force stays', async () => {
    const { state } = shardKeys(redis.prefix, 0);
    await prepareShards(redis, new Map([[0, encodeSeq(1, 0)]]));
    expect(await redis.client.hget(state, 'epoch')).toBe('1');
    await redis.client.del(state);
    await prepareShards(redis, new Map([[0, encodeSeq(41, 7)]]));
    expect(await redis.client.hmget(state, 'epoch', 'next')).toEqual(['42', '1']);
  });

  it('a Redis that is older than ClickHouse is refused: its next offsets were given out before', async () => {
    await stream.admit(0, makeBlock(3));
    await prepareShards(redis, new Map([[0, encodeSeq(1, 3)]]));
    await expect(prepareShards(redis, new Map([[0, encodeSeq(1, 4)]]))).rejects.toThrow(
      'older than ClickHouse',
    );
    await expect(prepareShards(redis, new Map([[0, encodeSeq(2, 1)]]))).rejects.toThrow(
      'older than ClickHouse',
    );
  });
});

describe('cursor', () => {
  it('reads whole blocks up to the limits and refuses a stream with a hole', async () => {
    for (const rows of [10, 10, 10]) await stream.admit(0, makeBlock(rows));
    using cursor = await LogCursor.open(redis, 'ingest', await forceOwnership());
    expect(await cursor.read(1, { ...WIDE, rowsMax: 15 })).toMatchObject({ from: 1, to: 21, rows: 20 });
    expect(await cursor.read(1, { ...WIDE, bytesMax: 1 })).toMatchObject({ from: 1, to: 11, rows: 10 });
    expect(await cursor.read(1, { ...WIDE, rawBytesMax: 1 })).toMatchObject({ from: 1, to: 11, rows: 10 });
    expect(await cursor.readPlanned(11, 31)).toMatchObject({ from: 11, to: 31, rows: 20 });
    await redis.client.xdel(shardKeys(redis.prefix, 0).log, '11-0');
    await expect(cursor.read(1, WIDE)).rejects.toThrow('expected the entry 11');
  });

  it('F04: of two owners only the one with the newest fence plans and commits', async () => {
    await stream.admit(0, makeBlock(10));
    using first = await LogCursor.open(redis, 'ingest', await forceOwnership());
    expect(await first.writePlan(1, 'plan-a')).toBe(true);
    const ownership = await forceOwnership();
    expect(ownership).toMatchObject({ plan: 'plan-a', done: 1 });
    using second = await LogCursor.open(redis, 'ingest', ownership);
    expect(await first.commit('plan-a', 11, 100, NOW_MS)).toBe(false);
    expect(await first.writePlan(1, 'plan-b')).toBe(false);
    expect(await second.writePlan(1, 'plan-b')).toBe(false);
    expect(await second.commit('plan-a', 11, 100, NOW_MS)).toBe(true);
    expect(await second.commit('plan-a', 11, 100, NOW_MS)).toBe(true);
    expect(await second.writePlan(1, 'plan-c')).toBe(false);
    expect(await second.writePlan(11, 'plan-c')).toBe(true);
  });

  it('trims what every consumer is past and the replay window has passed, nothing else', async () => {
    const blocks = [makeBlock(10), makeBlock(10), makeBlock(10)];
    for (const block of blocks) await stream.admit(0, block);
    using ingest = await LogCursor.open(redis, 'ingest', await forceOwnership());
    const oneBlock = (blocks[0]?.block.length ?? 0) + (blocks[0]?.digest.length ?? 0);
    for (const [from, to, receivedAtMs] of [
      [1, 11, NOW_MS],
      [11, 21, NOW_MS + 5_000],
    ] as const) {
      expect(await ingest.writePlan(from, `plan ${from}`)).toBe(true);
      expect(await ingest.commit(`plan ${from}`, to, oneBlock, receivedAtMs)).toBe(true);
    }
    const later = NOW_MS + 16 * 60_000;
    const firstIds = async (): Promise<string[]> =>
      (await redis.client.xrange(shardKeys(redis.prefix, 0).log, '-', '+')).map(([id]) => id);
    expect(await ingest.trim(later)).toBe(3 * oneBlock);
    expect(await firstIds()).toEqual(['1-0', '11-0', '21-0']);
    using alert = await LogCursor.open(redis, 'alert', await forceOwnership('alert'));
    expect(await alert.advanceToEnd()).toBe(true);
    expect(await ingest.trim(NOW_MS + 15 * 60_000 + 1_000)).toBe(2 * oneBlock);
    expect(await firstIds()).toEqual(['11-0', '21-0']);
    expect(await ingest.trim(later)).toBe(oneBlock);
    expect(await firstIds()).toEqual(['21-0']);
  });
});

describe('tail', () => {
  const received = (): { offsets: number[]; gaps: [number, number][]; open: () => Promise<ShardTail> } => {
    const offsets: number[] = [];
    const gaps: [number, number][] = [];
    const listener = {
      onBlock: (_epoch: number, { firstOffset }: { firstOffset: number }) => void offsets.push(firstOffset),
      onGap: (from: number, to: number) => void gaps.push([from, to]),
      onError: () => {},
    };
    return { offsets, gaps, open: async () => ShardTail.open(redis, 0, listener) };
  };

  it('publishes the blocks of watched projects only, in stream order', async () => {
    const seen = received();
    await using tail = await seen.open();
    await stream.admit(0, makeBlock(2));
    expect(await tail.watch(PROJECT)).toEqual({ epoch: 1, nextOffset: 3 });
    await stream.admit(0, makeBlock(2, OTHER));
    for (let i = 0; i < 20; i += 1) await stream.admit(0, makeBlock(2));
    await waitFor('20 blocks', () => seen.offsets.length === 20);
    expect(seen.offsets).toEqual(Array.from({ length: 20 }, (_, i) => 5 + 2 * i));
    expect(seen.gaps).toEqual([]);
  });

  it('F39: a subscriber that Redis dropped gets what it missed from the stream, once and in order', async () => {
    const seen = received();
    await using tail = await seen.open();
    await tail.watch(PROJECT);
    await stream.admit(0, makeBlock(1));
    await waitFor('the first block', () => seen.offsets.length === 1);
    await redis.client.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    for (let i = 0; i < 50; i += 1) await stream.admit(0, makeBlock(1));
    await waitFor('all blocks', async () => {
      // Something has to come after the hole for it to be noticed at once.
      if (seen.offsets.length < 51) await stream.admit(0, makeBlock(1));
      return seen.offsets.length >= 51;
    });
    expect(seen.offsets).toEqual(seen.offsets.map((_, index) => index + 1));
    expect(seen.gaps).toEqual([]);
  });

  it('notices a lost last message by itself', async () => {
    const seen = received();
    await using tail = await seen.open();
    await tail.watch(PROJECT);
    await redis.client.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await stream.admit(0, makeBlock(1));
    await waitFor('the block', () => seen.offsets.length === 1);
    expect(seen.offsets).toEqual([1]);
  });

  it('tells of a hole that the stream does not hold any more', async () => {
    const seen = received();
    await using tail = await seen.open();
    await tail.watch(PROJECT);
    const { log, tailed } = shardKeys(redis.prefix, 0);
    await redis.client.hset(tailed, PROJECT, '0');
    for (let i = 0; i < 5; i += 1) await stream.admit(0, makeBlock(1));
    await redis.client.xtrim(log, 'MINID', '4-0');
    await waitFor('the rest', () => seen.offsets.length === 2);
    expect(seen.offsets).toEqual([4, 5]);
    expect(seen.gaps).toEqual([[1, 4]]);
  });

  it('reads a range from the middle of a block on', async () => {
    for (const rows of [10, 10]) await stream.admit(0, makeBlock(rows));
    const range = await readTailRange(redis, 0, 5, 21);
    expect(range.firstOffset).toBe(5);
    expect(range.blocks.map(({ firstOffset }) => firstOffset)).toEqual([1, 11]);
  });
});

describe('a start', () => {
  let loose: Awaited<ReturnType<typeof spawnRedis>>;
  beforeAll(async () => {
    loose = await spawnRedis({ dataDir: join(dataDir, 'loose') });
  });
  // A Redis whose append-only file was switched on a moment ago does not obey SIGTERM.
  afterAll(() => void loose.child.kill('SIGKILL'));

  it.each([
    ['appendfsync', 'everysec', 'always'],
    ['no-appendfsync-on-rewrite', 'yes', 'no'],
    ['maxmemory-policy', 'allkeys-lru', 'noeviction'],
    ['maxmemory', '0', '2147483648'],
    ['auto-aof-rewrite-min-size', '67108864', '1073741824'],
    ['appendonly', 'no', 'yes'],
  ])('refuses a Redis with %s %s', async (name, value, right) => {
    const client = new Redis(loose.url);
    await client.config('SET', name, value);
    await expect(connectRedis({ ...settings(), REDIS_URL: loose.url })).rejects.toThrow(`${name}: expected`);
    await client.config('SET', name, right);
    client.disconnect();
  });

  it('refuses a Redis whose memory is too small for the budget', async () => {
    const tight = { ...settings(2_000_000_000), REDIS_URL: loose.url };
    await expect(connectRedis(tight)).rejects.toThrow('maxmemory: expected REDIS_BUDGET_BYTES (2000000000)');
  });
});
