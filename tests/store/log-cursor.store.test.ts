import { describe, expect, it } from 'vitest';
import type { RedisStore } from '@logpond/db/connect';
import type { LogStream } from '@logpond/db/log-stream';
import { DeadLetters } from '@logpond/db/dead-letters';
import { LogCursor } from '@logpond/db/log-cursor';
import { shardKeys } from '@logpond/db/shard-map';
import {
  beginEachTest,
  forceOwnership,
  makeBlock,
  passAlertCursor,
  NOW_MS,
  PROJECT,
  WIDE,
} from './stream-fixture.ts';
import type { StreamFixture } from './stream-fixture.ts';

let fixture: StreamFixture;
let redis: RedisStore;
let stream: LogStream;

beginEachTest((begun) => ({ fixture, redis, stream } = begun));

describe('cursor', () => {
  it('reads whole blocks up to the limits and refuses a stream with a hole', async () => {
    for (const rows of [10, 10, 10]) await stream.admit(0, makeBlock(rows));
    using cursor = await LogCursor.open(redis, await forceOwnership(redis));
    expect(await cursor.read(1, { ...WIDE, rowsMax: 15 })).toMatchObject({ from: 1, to: 21, rows: 20 });
    expect(await cursor.read(1, { ...WIDE, bytesMax: 1 })).toMatchObject({ from: 1, to: 11, rows: 10 });
    expect(await cursor.read(1, { ...WIDE, rawBytesMax: 1 })).toMatchObject({ from: 1, to: 11, rows: 10 });
    expect(await cursor.readPlanned(11, 31)).toMatchObject({ from: 11, to: 31, rows: 20 });
    await redis.client.xdel(shardKeys(redis.prefix, 0).log, '11-0');
    await expect(cursor.read(1, WIDE)).rejects.toThrow('expected the entry 11');
  });

  it('F04: of two owners only the one with the newest fence plans and commits', async () => {
    await stream.admit(0, makeBlock(10));
    using first = await LogCursor.open(redis, await forceOwnership(redis));
    const range = await first.read(1, WIDE);
    expect(await first.writePlan(1, 'plan-a')).toBe(true);
    const ownership = await forceOwnership(redis);
    expect(ownership).toMatchObject({ plan: 'plan-a', done: 1 });
    using second = await LogCursor.open(redis, ownership);
    expect(await first.commit('plan-a', range, NOW_MS)).toBe(false);
    expect(await first.writePlan(1, 'plan-b')).toBe(false);
    expect(await second.writePlan(1, 'plan-b')).toBe(false);
    expect(await second.commit('plan-a', range, NOW_MS)).toBe(true);
    expect(await second.commit('plan-a', range, NOW_MS)).toBe(true);
    expect(await second.writePlan(1, 'plan-c')).toBe(false);
    expect(await second.writePlan(11, 'plan-c')).toBe(true);
  });

  it('trims what every consumer is past and the replay window has passed, nothing else', async () => {
    const blocks = [makeBlock(10), makeBlock(10), makeBlock(10)];
    for (const block of blocks) await stream.admit(0, block);
    using ingest = await LogCursor.open(redis, await forceOwnership(redis));
    const oneBlock = (blocks[0]?.block.length ?? 0) + (blocks[0]?.digest.length ?? 0);
    for (const [from, receivedAtMs] of [
      [1, NOW_MS],
      [11, NOW_MS + 5_000],
    ] as const) {
      const range = await ingest.read(from, { ...WIDE, rowsMax: 1 });
      expect(await ingest.writePlan(from, `plan ${from}`)).toBe(true);
      expect(await ingest.commit(`plan ${from}`, range, receivedAtMs)).toBe(true);
    }
    const later = NOW_MS + 16 * 60_000;
    const firstIds = async (): Promise<string[]> =>
      (await redis.client.xrange(shardKeys(redis.prefix, 0).log, '-', '+')).map(([id]) => id);
    expect(await ingest.trim(later)).toMatchObject({ heldBytes: 3 * oneBlock, slowest: 'alert' });
    expect(await firstIds()).toEqual(['1-0', '11-0', '21-0']);
    await passAlertCursor(redis, 31);
    expect(await ingest.trim(NOW_MS + 15 * 60_000 + 1_000)).toMatchObject({ heldBytes: 2 * oneBlock });
    expect(await firstIds()).toEqual(['11-0', '21-0']);
    expect(await ingest.trim(later)).toMatchObject({ heldBytes: oneBlock, slowest: 'ingest' });
    expect(await firstIds()).toEqual(['21-0']);
  });

  it('counts the owners that found a plan open, and tells the next what was buried of it', async () => {
    await stream.admit(0, makeBlock(10));
    const first = await forceOwnership(redis);
    expect(first).toMatchObject({ planTries: 0, buried: [] });
    using cursor = await LogCursor.open(redis, first);
    await cursor.writePlan(1, 'plan');
    const letters = new DeadLetters(redis);
    const covers = [
      { from: 2, to: 3 },
      { from: 5, to: 8 },
    ];
    expect(await letters.recordBuried(0, first.fence, 'some', covers)).toBe('buried');
    expect(await forceOwnership(redis)).toMatchObject({ planTries: 1, buried: covers });
    const second = await forceOwnership(redis);
    expect(second).toMatchObject({ planTries: 2, buried: covers });
    expect(await letters.recordBuried(0, first.fence, 'other', covers)).toBe('replaced');
    using last = await LogCursor.open(redis, second);
    await last.commit('plan', await last.read(1, WIDE), NOW_MS);
    await stream.admit(0, makeBlock(10));
    await last.writePlan(11, 'another plan');
    expect(await forceOwnership(redis)).toMatchObject({ planTries: 1, buried: [] });
  });

  it('F34: audits that a clock which was set back left in the future keep nothing waiting', async () => {
    await stream.admit(0, makeBlock(2));
    using cursor = await LogCursor.open(redis, await forceOwnership(redis));
    const range = await cursor.read(1, WIDE);
    await cursor.writePlan(1, 'plan');
    await cursor.commit('plan', range, NOW_MS, 'fresh');
    const { audits } = shardKeys(redis.prefix, 0);
    expect(await cursor.listAudits(Date.now() - 60_000, 10)).toEqual([]);
    await redis.client.lpush(audits, `${Date.now() + 86_400_000} of tomorrow`);
    expect(await cursor.listAudits(Date.now() - 60_000, 10)).toEqual(['of tomorrow']);
    await cursor.dropAudits(['of tomorrow']);
    expect(await cursor.listAudits(Date.now() + 1, 10)).toEqual(['fresh']);
  });

  it('audits beyond 10,000 are dropped, the oldest first, and counted', async () => {
    await stream.admit(0, makeBlock(2));
    using cursor = await LogCursor.open(redis, await forceOwnership(redis));
    const { audits } = shardKeys(redis.prefix, 0);
    await redis.client.rpush(audits, '1 oldest', ...Array.from({ length: 9_999 }, () => '2 old'));
    const range = await cursor.read(1, WIDE);
    await cursor.writePlan(1, 'plan');
    expect(await cursor.countUnaudited()).toBe(0);
    await cursor.commit('plan', range, NOW_MS, 'newest');
    expect(await cursor.countUnaudited()).toBe(1);
    expect(await cursor.listAudits(Date.now() + 1, 1)).toEqual(['old']);
    expect(await redis.client.lindex(audits, -1)).toMatch(/ newest$/);
  });

  it('ends a range of tiny blocks before its commit outgrows a command, and commits it', async () => {
    const { block, digest } = makeBlock(1);
    const keys = shardKeys(redis.prefix, 0);
    const blocks = 25_000;
    const pipeline = fixture.raw.pipeline();
    for (let id = 1; id <= blocks; id += 1) pipeline.xadd(keys.log, `${id}-0`, 'b', block, 'd', digest);
    await pipeline.hset(keys.state, 'next', blocks + 1).exec();
    using cursor = await LogCursor.open(redis, await forceOwnership(redis));
    const range = await cursor.read(1, { rowsMax: 1e6, bytesMax: 1e9, rawBytesMax: 1e9 });
    expect(range).toMatchObject({ to: 20_001, shares: new Map([[PROJECT, { rows: 20_000 }]]) });
    expect(await cursor.writePlan(1, 'plan')).toBe(true);
    expect(await cursor.commit('plan', range, NOW_MS)).toBe(true);
  });

  it('keeps what was committed for the auditor, oldest first, until it is dropped', async () => {
    using cursor = await LogCursor.open(redis, await forceOwnership(redis));
    let done = 1;
    for (const audit of ['{"a":1}', '{"b":2}']) {
      await stream.admit(0, makeBlock(1));
      const range = await cursor.read(done, WIDE);
      await cursor.writePlan(done, audit);
      await cursor.commit(audit, range, NOW_MS, audit);
      done = range.to;
    }
    const later = Date.now() + 60_000;
    expect(await cursor.listAudits(Date.now() - 60_000, 10)).toEqual([]);
    expect(await cursor.listAudits(later, 1)).toEqual(['{"a":1}']);
    expect(await cursor.listAudits(later, 10)).toEqual(['{"a":1}', '{"b":2}']);
    await cursor.dropAudits(['{"a":1}']);
    await cursor.dropAudits(['{"a":1}']);
    expect(await cursor.listAudits(later, 10)).toEqual(['{"b":2}']);
  });

  it('F33: spans a block with a damaged header by the offsets around it, at the end of the stream too', async () => {
    const { log } = shardKeys(redis.prefix, 0);
    for (const rows of [10, 10]) await stream.admit(0, makeBlock(rows));
    const entries = await redis.client.xrangeBuffer(log, '-', '+');
    await redis.client.del(log);
    for (const [id, [, block = Buffer.alloc(0), , digest = '']] of entries) {
      block[8] = 77;
      await redis.client.xadd(log, id.toString(), 'b', block, 'd', digest);
    }
    using cursor = await LogCursor.open(redis, await forceOwnership(redis));
    const { blocks, to } = await cursor.read(1, WIDE);
    expect(to).toBe(21);
    expect(blocks).toMatchObject([
      { firstOffset: 1, rows: 10, runs: [], damage: expect.stringContaining('10 entries at 1') as string },
      { firstOffset: 11, rows: 10, runs: [], damage: expect.stringContaining('10 entries at 11') as string },
    ]);
  });
});
