import { beforeEach, describe, expect, it } from 'vitest';
import type { RedisStore } from '@logpond/db/connect';
import type { LogStream } from '@logpond/db/log-stream';
import { connectRedis } from '@logpond/db/connect';
import { LogCursor } from '@logpond/db/log-cursor';
import { shardKeys } from '@logpond/db/shard-map';
import { beginEachTest, forceOwnership, makeBlock, NOW_MS, OTHER, PROJECT, WIDE } from './stream-fixture.ts';
import type { StreamFixture } from './stream-fixture.ts';

let fixture: StreamFixture;
let redis: RedisStore;
let stream: LogStream;

beginEachTest((begun) => ({ fixture, redis, stream } = begun));

describe('admit', () => {
  it('numbers entries densely from 1, so that a stream id is the offset of the first entry', async () => {
    const offsets = [];
    for (const rows of [3, 1, 5]) offsets.push(await stream.admit(0, makeBlock(rows)));
    expect(offsets).toMatchObject([1, 4, 5].map((firstOffset) => ({ kind: 'stored', firstOffset })));
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

  it('another number of shards is refused at start: what waits in a left stream would never be stored', async () => {
    await expect(connectRedis({ ...fixture.settings(), SHARDS: 2 })).rejects.toThrow('SHARDS: expected 1');
  });

  it('is unavailable before the shard has its epoch', async () => {
    await redis.client.del(shardKeys(redis.prefix, 0).state);
    await expect(stream.admit(0, makeBlock(1))).rejects.toMatchObject({ kind: 'unavailable' });
  });
});

describe('the budget', () => {
  const keys = (): ReturnType<typeof shardKeys> => shardKeys(redis.prefix, 0);
  const BUDGET = 16_777_216;

  /** As if the stream held this many bytes. */
  async function fill(share: number): Promise<void> {
    await redis.client.hset(keys().state, 'bytesIn', Math.floor(share * BUDGET));
  }

  beforeEach(async () => {
    await redis[Symbol.asyncDispose]();
    ({ redis, stream } = await fixture.begin(BUDGET));
  });

  it('counts the backlog of each project to the byte, and gives it back with the commit', async () => {
    const blocks = [makeBlock(10), makeBlock(20, OTHER), makeBlock(5)];
    for (const block of blocks) await stream.admit(0, block);
    const sizes = blocks.map(({ block, digest }) => block.length + digest.length);
    expect(await redis.client.hgetall(keys().backlog)).toEqual({
      [PROJECT]: String((sizes[0] ?? 0) + (sizes[2] ?? 0)),
      [`${PROJECT}#`]: '15',
      [OTHER]: String(sizes[1]),
      [`${OTHER}#`]: '20',
    });
    expect(await stream.readBacklog(OTHER)).toMatchObject({ entries: 20, bytes: sizes[1] });
    using cursor = await LogCursor.open(redis, await forceOwnership(redis));
    const range = await cursor.read(1, { ...WIDE, rowsMax: 11 });
    await cursor.writePlan(1, 'plan');
    expect(await cursor.commit('plan', range, NOW_MS)).toBe(true);
    expect(await redis.client.hgetall(keys().backlog)).toEqual({
      [PROJECT]: String(sizes[2]),
      [`${PROJECT}#`]: '5',
    });
    expect(await stream.readBacklog(OTHER)).toEqual({ entries: 0, bytes: 0, seconds: 0 });
  });

  it('above 60 % names the projects above their fair share, and only them', async () => {
    await fill(0.59);
    expect(await stream.admit(0, makeBlock(1))).toMatchObject({ isPressed: true, crowded: new Map() });
    await fill(0.7);
    await redis.client.hset(keys().backlog, PROJECT, 6_000_000, OTHER, 4_000_000, `${OTHER}#`, 1);
    // Two projects share 60 % of 16 MB: 5 MB each.
    expect(await stream.admit(0, makeBlock(1))).toMatchObject({ crowded: new Map([[PROJECT, 300]]) });
    expect(await stream.admit(0, makeBlock(1, OTHER))).toMatchObject({ crowded: new Map() });
  });

  it('tells from the measured drain rate when there is room again', async () => {
    await fill(0.7);
    const state = { drainBytes: 10_000_000, drainMs: 10_000, drainedAt: Date.now() };
    await redis.client.hset(keys().state, state);
    await redis.client.hset(keys().backlog, PROJECT, 12_000_000);
    const admission = await stream.admit(0, makeBlock(1));
    expect(admission.kind === 'stored' && admission.crowded.get(PROJECT)).toBeCloseTo(13, -1);
    await redis.client.hset(keys().state, 'drainedAt', Date.now() - 90_000);
    const slow = await stream.admit(0, makeBlock(1));
    expect(slow.kind === 'stored' && slow.crowded.get(PROJECT)).toBeGreaterThan(100);
  });

  it('above 80 % nothing is admitted', async () => {
    await fill(0.805);
    expect(await stream.admit(0, makeBlock(100))).toEqual({ kind: 'full', retryAfterS: 300 });
    expect(await redis.client.xlen(keys().log)).toBe(0);
    expect(await redis.client.exists(keys().backlog)).toBe(0);
  });
});
