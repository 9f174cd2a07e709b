import { AlertCursor } from '@logpond/db/alert-cursor';
import type { AlertPlace, AlertRange } from '@logpond/db/alert-cursor';
import { AlertWindows } from '@logpond/db/alert-windows';
import type { CountStep } from '@logpond/db/alert-windows';
import type { RedisStore } from '@logpond/db/connect';
import { LogCursor } from '@logpond/db/log-cursor';
import type { LogStream } from '@logpond/db/log-stream';
import type { RuleChange } from '@logpond/db/rule-change';
import { RuleStream } from '@logpond/db/rule-stream';
import { shardKeys } from '@logpond/db/shard-map';
import { readTailRange } from '@logpond/db/tail';
import { describe, expect, it } from 'vitest';
import { beginEachTest, forceOwnership, makeBlock, NOW_MS, PROJECT, WIDE } from './stream-fixture.ts';

const START: AlertPlace = { done: 1, controls: 0 };

let redis: RedisStore;
let stream: LogStream;

beginEachTest((begun) => ({ redis, stream } = begun));

function makeChange(id: string, version = 1): Extract<RuleChange, { op: 'put' }> {
  const createdAt = new Date(NOW_MS).toISOString();
  const condition = {
    field: 'level',
    operator: 'equals',
    value: 'error',
    threshold: 1,
    timeWindow: '1m',
  } as const;
  const rule = { version, id, projectId: PROJECT, generation: 1, createdAt, updatedAt: createdAt };
  return { op: 'put', rule: { ...rule, name: id, enabled: true, condition, notifications: [] } };
}

async function publish(id: string): Promise<void> {
  await new RuleStream(redis).publish(makeChange(id));
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
    using cursor = await LogCursor.open(redis, 'ingest', await forceOwnership(redis));
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
    using ingest = await LogCursor.open(redis, 'ingest', await forceOwnership(redis));
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

  it('is refused when 10,000 wait for the alert worker', async () => {
    await redis.client.hset(shardKeys(redis.prefix, 0).state, 'controls', 10_000, 'alert:controls', 0);
    await expect(publish('a')).rejects.toMatchObject({ kind: 'unavailable' });
    await redis.client.hset(shardKeys(redis.prefix, 0).state, 'alert:controls', 1);
    await publish('a');
  });
});

function makeStep(step: Partial<CountStep>): CountStep {
  return { to: START, changes: [], resets: new Set(), windows: new Map(), outbox: [], ...step };
}

function makeWindow(set: Record<string, string>, unset: string[] = []): CountStep['windows'] {
  return new Map([['a', { set, unset }]]);
}

describe('a step of the alert worker', () => {
  it('is found whole by the next owner: place, rules in force and their windows', async () => {
    const windows = await AlertWindows.open(redis, await forceOwnership(redis, 'alert'));
    expect(windows.place).toEqual(START);
    const change = makeChange('a');
    const to = { done: 7, controls: 2 };
    expect(
      await windows.count(makeStep({ to, changes: [change], windows: makeWindow({ b1: '5', b2: '1' }) })),
    ).toBe(true);
    expect(await windows.count(makeStep({ to, windows: makeWindow({ b3: '2' }, ['b1']) }))).toBe(true);
    const next = await AlertWindows.open(redis, await forceOwnership(redis, 'alert'));
    expect(next.place).toEqual(to);
    expect(await next.listRules()).toEqual([{ rule: change.rule, fields: { b2: '1', b3: '2' } }]);
    await next.count(makeStep({ to, resets: new Set(['a']), windows: makeWindow({ b9: '1' }) }));
    expect(await next.listRules()).toMatchObject([{ fields: { b9: '1' } }]);
    const gone: RuleChange = { op: 'delete', ruleId: 'a', projectId: PROJECT, version: 2 };
    await next.count(makeStep({ to, changes: [gone], resets: new Set(['a']) }));
    expect(await next.listRules()).toEqual([]);
    expect(await redis.client.exists(shardKeys(redis.prefix, 0).window('a'))).toBe(0);
  });

  it('an outbox item is there once when the call is repeated after an unknown outcome', async () => {
    const ownership = await forceOwnership(redis, 'alert');
    const windows = await AlertWindows.open(redis, ownership);
    const twin = await AlertWindows.open(redis, ownership);
    const { rule } = makeChange('a');
    const times = { startedAtMs: 1, resolvedAtMs: null, atMs: 1 };
    const item = {
      ...times,
      firingId: 'f',
      kind: 'fired',
      repeat: 0,
      projectId: PROJECT,
      rule,
      count: 1,
      firedCount: 1,
      peak: 1,
    } as const;
    const step = makeStep({ to: { done: 2, controls: 0 }, outbox: [item] });
    expect(await windows.count(step)).toBe(true);
    expect(await twin.count(step)).toBe(true);
    const [only, ...others] = await windows.readOutbox(10);
    expect(others).toEqual([]);
    expect(only?.item).toEqual(item);
    await windows.dropOutbox([only?.text ?? '']);
    expect(await windows.readOutbox(10)).toEqual([]);
    // Of items that are gone or not at the head nothing is searched for.
    const { outbox } = shardKeys(redis.prefix, 0);
    await redis.client.rpush(outbox, 'c', 'd', 'e');
    await windows.dropOutbox(['a', 'b', 'c', 'd']);
    expect(await redis.client.lrange(outbox, 0, -1)).toEqual(['e']);
    await redis.client.rpush(outbox, 'f');
    await windows.dropOutbox(['f']);
    expect(await redis.client.lrange(outbox, 0, -1)).toEqual(['e', 'f']);
  });

  it('is refused from an owner that was replaced', async () => {
    const old = await AlertWindows.open(redis, await forceOwnership(redis, 'alert'));
    const current = await AlertWindows.open(redis, await forceOwnership(redis, 'alert'));
    const to = { done: 5, controls: 0 };
    expect(await old.count(makeStep({ to, windows: makeWindow({ b1: '1' }) }))).toBe(false);
    expect(await current.count(makeStep({ to }))).toBe(true);
    expect(await redis.client.exists(shardKeys(redis.prefix, 0).window('a'))).toBe(0);
  });
});
