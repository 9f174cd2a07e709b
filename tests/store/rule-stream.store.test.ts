import { AlertCursor } from '@logpond/db/alert-cursor';
import type { AlertPlace, AlertRange } from '@logpond/db/alert-cursor';
import { AlertWindows } from '@logpond/db/alert-windows';
import type { RedisStore } from '@logpond/db/connect';
import { LogCursor } from '@logpond/db/log-cursor';
import type { LogStream } from '@logpond/db/log-stream';
import { RuleStream } from '@logpond/db/rule-stream';
import { shardKeys } from '@logpond/db/shard-map';
import { readTailRange } from '@logpond/db/tail';
import { describe, expect, it } from 'vitest';
import { makeChange, makeStep, START } from './rule-stream-fixture.ts';
import { beginEachTest, forceOwnership, makeBlock, NOW_MS, WIDE } from './stream-fixture.ts';

let redis: RedisStore;
let stream: LogStream;

beginEachTest((begun) => ({ redis, stream } = begun));

async function publish(id: string, name = id): Promise<void> {
  const { op, rule } = makeChange(id);
  await new RuleStream(redis).publish({ op, rule: { ...rule, name } });
}

/** What the shard says that changes in its stream take, and of how many it says where they lie. */
async function readHeld(): Promise<{ bytes: number; places: number }> {
  const state = await redis.client.hgetall(shardKeys(redis.prefix, 0).state);
  const places = Object.keys(state).filter((name) => name.startsWith('control:')).length;
  const { controlBytesIn = '0', controlBytesGone = '0' } = state;
  return { bytes: Number(controlBytesIn) - Number(controlBytesGone), places };
}

/** Blocks as `<first offset>+<rows>`, changes as the rule's id. */
function render({ items }: Pick<AlertRange, 'items'>): string[] {
  return items.map((item) => {
    if ('block' in item) return `${item.firstOffset}+${item.rows}`;
    return item.change?.op === 'put' ? item.change.rule.id : 'unreadable';
  });
}

async function readAll(place: AlertPlace = START): Promise<AlertRange> {
  using cursor = await AlertCursor.open(redis, { shard: 0 });
  return await cursor.read(place, WIDE);
}

async function listIds(): Promise<string[]> {
  return (await redis.client.xrange(shardKeys(redis.prefix, 0).log, '-', '+')).map(([id]) => id);
}

describe('a change of rules in the stream', () => {
  it('stands between the entries admitted before and after it, and takes no offset', async () => {
    await publish('a');
    await stream.admit(0, makeBlock(3));
    await publish('b');
    await publish('c');
    await stream.admit(0, makeBlock(1));
    await publish('d');
    expect(await listIds()).toEqual(['0-1', '1-0', '3-2', '3-3', '4-0', '4-4']);
    const range = await readAll();
    expect(render(range)).toEqual(['a', '1+3', 'b', 'c', '4+1', 'd']);
    expect(range).toMatchObject({ to: { done: 5, controls: 4 }, rows: 4, isEnd: true });
    expect(render(await readAll({ done: 4, controls: 2 }))).toEqual(['c', '4+1', 'd']);
    expect(render(await readAll({ done: 5, controls: 4 }))).toEqual([]);
  });

  it('wakes the alert worker, and nothing that was read does', async () => {
    using cursor = await AlertCursor.open(redis, { shard: 0 });
    const waiting = cursor.waitForEntry(START, 5_000);
    await publish('a');
    expect(await waiting).toBe(true);
    expect(await cursor.waitForEntry({ done: 1, controls: 1 }, 20)).toBe(false);
  });

  it('is read in parts of any size, in order', async () => {
    for (let index = 0; index < 20; index += 1) {
      await publish(`rule ${index}`);
      await stream.admit(0, makeBlock(1 + (index % 3)));
    }
    using cursor = await AlertCursor.open(redis, { shard: 0 });
    const seen: string[] = [];
    for (let place = START; ;) {
      const range = await cursor.read(place, { ...WIDE, rowsMax: 5 });
      seen.push(...render(range));
      place = range.to;
      if (range.items.length === 0) break;
    }
    expect(seen).toEqual(render(await readAll()));
    expect(seen).toHaveLength(40);
  });

  it('is stepped over by the ingest worker and by readers of the tail', async () => {
    for (let index = 0; index < 40; index += 1) {
      await publish(`rule ${index}`);
      await stream.admit(0, makeBlock(1));
      await publish(`and ${index}`);
    }
    using cursor = await LogCursor.open(redis, await forceOwnership(redis));
    expect(await cursor.read(1, WIDE)).toMatchObject({ from: 1, to: 41, rows: 40 });
    expect(await cursor.readPlanned(11, 21)).toMatchObject({ rows: 10 });
    expect(await cursor.waitForBlock(41, 20)).toBe(false);
    const { blocks } = await readTailRange(redis, 0, 5, 8);
    expect(blocks.map(({ firstOffset }) => firstOffset)).toEqual([5, 6, 7]);
  });

  it('does not hide where the block before it began, nor where a damaged one ends', async () => {
    await stream.admit(0, makeBlock(5));
    for (const id of ['a', 'b', 'c']) await publish(id);
    const { blocks } = await readTailRange(redis, 0, 3, 6);
    expect(blocks).toMatchObject([{ firstOffset: 1, rows: 5 }]);
    const { log, state } = shardKeys(redis.prefix, 0);
    await redis.client.xadd(log, '6-0', 'b', 'rust', 'd', 'rust');
    await redis.client.hincrby(state, 'next', 4);
    await publish('d');
    const damaged = (await readAll()).items.at(-2);
    expect(damaged).toMatchObject({ firstOffset: 6, rows: 4 });
    expect(damaged).toHaveProperty('damage');
  });

  it('that cannot be read is told, and what follows is read', async () => {
    const { log, state } = shardKeys(redis.prefix, 0);
    await redis.client.xadd(log, '0-1', 'rules', '{');
    await redis.client.hset(state, 'controls', 1);
    await publish('b');
    expect(render(await readAll())).toEqual(['unreadable', 'b']);
  });

  it('is not trimmed before the alert worker has read it, and goes afterwards', async () => {
    await stream.admit(0, makeBlock(10));
    await publish('a');
    await publish('b');
    using ingest = await LogCursor.open(redis, await forceOwnership(redis));
    const range = await ingest.read(1, WIDE);
    await ingest.writePlan(1, 'plan');
    await ingest.commit('plan', range, NOW_MS);
    const windows = await AlertWindows.open(redis, await forceOwnership(redis, 'alert'));
    const later = NOW_MS + 16 * 60_000;
    await windows.count(makeStep({ to: { done: 11, controls: 1 } }));
    await ingest.trim(later);
    expect(await listIds()).toEqual(['10-2']);
    await windows.count(makeStep({ to: { done: 11, controls: 2 } }));
    await stream.admit(0, makeBlock(1));
    expect(render(await readAll({ done: 11, controls: 2 }))).toEqual(['11+1']);
  });

  it('that was read goes after its time on a shard without entries, and one that was not read stays', async () => {
    for (const id of ['a', 'b', 'c']) await publish(id);
    using ingest = await LogCursor.open(redis, await forceOwnership(redis));
    const windows = await AlertWindows.open(redis, await forceOwnership(redis, 'alert'));
    const later = Date.now() + redis.replayWindowMs + 60_000;
    await ingest.trim(later);
    expect(await listIds()).toEqual(['0-1', '0-2', '0-3']);
    await windows.count(makeStep({ to: { done: 1, controls: 2 } }));
    await ingest.trim(Date.now());
    expect(await listIds()).toEqual(['0-1', '0-2', '0-3']);
    await ingest.trim(later);
    expect(await listIds()).toEqual(['0-3']);
    expect(render(await readAll({ done: 1, controls: 2 }))).toEqual(['c']);
    await windows.count(makeStep({ to: { done: 1, controls: 3 } }));
    await ingest.trim(later);
    expect(await listIds()).toEqual([]);
    expect(await readHeld()).toEqual({ bytes: 0, places: 0 });
    await publish('d');
    await stream.admit(0, makeBlock(2));
    expect(await listIds()).toEqual(['0-4', '1-0']);
    expect(render(await readAll({ done: 1, controls: 3 }))).toEqual(['d', '1+2']);
  });

  it('goes from between blocks that stay, and no block goes for it', async () => {
    await stream.admit(0, makeBlock(3));
    await publish('a');
    await stream.admit(0, makeBlock(2));
    await publish('b');
    await stream.admit(0, makeBlock(1));
    const windows = await AlertWindows.open(redis, await forceOwnership(redis, 'alert'));
    await windows.count(makeStep({ to: { done: 7, controls: 2 } }));
    using ingest = await LogCursor.open(redis, await forceOwnership(redis));
    await ingest.trim(Date.now() + redis.replayWindowMs + 60_000);
    expect(await listIds()).toEqual(['1-0', '4-0', '6-0']);
    expect(await ingest.read(1, WIDE)).toMatchObject({ from: 1, to: 7, rows: 6 });
    const { blocks } = await readTailRange(redis, 0, 5, 7);
    expect(blocks.map(({ firstOffset }) => firstOffset)).toEqual([4, 6]);
  });

  it('that was read makes room when changes take more than 4 MB, oldest first; no other does', async () => {
    const large = 'x'.repeat(1_000_000);
    for (const id of ['a', 'b', 'c', 'd', 'e', 'f']) await publish(id, large);
    expect(await listIds()).toHaveLength(6);
    const windows = await AlertWindows.open(redis, await forceOwnership(redis, 'alert'));
    await windows.count(makeStep({ to: { done: 1, controls: 4 } }));
    await publish('g', large);
    expect(await listIds()).toEqual(['0-4', '0-5', '0-6', '0-7']);
    expect(await readHeld()).toMatchObject({ places: 4 });
    expect(render(await readAll({ done: 1, controls: 4 }))).toEqual(['e', 'f', 'g']);
    await publish('h', large);
    await publish('i', large);
    expect(render(await readAll({ done: 1, controls: 4 }))).toEqual(['e', 'f', 'g', 'h', 'i']);
  });

  it('is refused when those that wait take 16 MB, until some were read', async () => {
    const large = 'x'.repeat(2_000_000);
    for (let index = 0; index < 8; index += 1) await publish(`rule ${index}`, large);
    await expect(publish('more', large)).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('bytes') as unknown,
    });
    expect(await listIds()).toHaveLength(8);
    const windows = await AlertWindows.open(redis, await forceOwnership(redis, 'alert'));
    await windows.count(makeStep({ to: { done: 1, controls: 1 } }));
    await publish('more', large);
    expect(await listIds()).toEqual(['0-2', '0-3', '0-4', '0-5', '0-6', '0-7', '0-8', '0-9']);
  });

  it('is refused when 10,000 wait for the alert worker', async () => {
    await redis.client.hset(shardKeys(redis.prefix, 0).state, 'controls', 10_000, 'alert:controls', 0);
    await expect(publish('a')).rejects.toMatchObject({ kind: 'unavailable' });
    await redis.client.hset(shardKeys(redis.prefix, 0).state, 'alert:controls', 1);
    await publish('a');
  });
});
