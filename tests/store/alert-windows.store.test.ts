import { AlertWindows } from '@logpond/db/alert-windows';
import type { CountStep } from '@logpond/db/alert-windows';
import type { RedisStore } from '@logpond/db/connect';
import type { RuleChange } from '@logpond/db/rule-change';
import { shardKeys } from '@logpond/db/shard-map';
import { describe, expect, it } from 'vitest';
import { makeChange, makeStep, START } from './rule-stream-fixture.ts';
import { beginEachTest, forceOwnership, PROJECT } from './stream-fixture.ts';

let redis: RedisStore;

beginEachTest((begun) => ({ redis } = begun));

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

  it('an outbox item is for the recipients that its rule has in force, and carries none of them', async () => {
    const windows = await AlertWindows.open(redis, await forceOwnership(redis, 'alert'));
    const url = 'https://example.com/hook';
    const { op, rule } = makeChange('a');
    const told = { ...rule, notifications: [{ type: 'webhook' as const, config: { url } }] };
    const times = { startedAtMs: 1, resolvedAtMs: null, atMs: 1 };
    const counts = { count: 1, firedCount: 1, peak: 1 };
    const item = {
      firingId: 'f',
      kind: 'fired' as const,
      repeat: 0,
      projectId: PROJECT,
      ...counts,
      ...times,
    };
    const to = { done: 2, controls: 1 };
    await windows.count(makeStep({ to, changes: [{ op, rule: told }], outbox: [{ ...item, rule: told }] }));
    const [first] = await windows.readOutbox(10);
    expect(first?.text).not.toContain(url);
    expect(first?.item.rule).toEqual(told);
    const gone: RuleChange = { op: 'delete', ruleId: 'a', projectId: PROJECT, version: 2 };
    await windows.count(makeStep({ to, changes: [gone] }));
    expect((await windows.readOutbox(10))[0]?.item.rule).toEqual(rule);
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
