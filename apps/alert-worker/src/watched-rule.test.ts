import { describe, expect, it } from 'vitest';
import { brief, makeRule, NOW_S } from './rule.test-support.ts';
import { nameFiring, WatchedRule } from './watched-rule.ts';

const counted = (after: number, count: number) => ({
  second: NOW_S + after,
  receivedSecond: NOW_S + after,
  count,
});

/** Applies changes as count.lua does. */
function store(fields: Record<string, string>, watched: WatchedRule): Record<string, string> {
  const { set, unset } = watched.takeChanges() ?? { set: {}, unset: [] };
  const kept = Object.entries({ ...fields, ...set }).filter(([name]) => !unset.includes(name));
  return Object.fromEntries(kept);
}

describe('a rule that is watched', () => {
  it('fires once when its window reaches the threshold and resolves when the window has passed', () => {
    const watched = new WatchedRule(makeRule());
    expect(watched.count(counted(0, 2))).toEqual([]);
    const [fired, ...more] = watched.count(counted(1, 2));
    expect(more).toEqual([]);
    expect(fired && brief(fired)).toEqual({
      kind: 'fired',
      repeat: 0,
      count: 4,
      peak: 4,
      startedAt: 1,
      resolvedAt: null,
    });
    expect(fired?.atMs).toBe((NOW_S + 1) * 1_000);
    expect(watched.isFiring).toBe(true);
    expect(watched.count(counted(2, 5))).toEqual([]);

    const items = watched.tick((NOW_S + 60) * 1_000);
    // Eleven buckets touch a window of ten seconds: the last errors are in it until the end of bucket 12.
    expect(items.map(brief)).toEqual([
      { kind: 'resolved', repeat: 0, count: 0, peak: 9, startedAt: 1, resolvedAt: 14 },
    ]);
    expect(items[0]?.firingId).toBe(fired?.firingId);
    expect(watched.isFiring).toBe(false);
  });

  it('goes on from its stored fields as if it had never been put down', () => {
    const before = new WatchedRule(makeRule());
    before.count(counted(0, 2));
    const fields = store({}, before);
    const after = new WatchedRule(makeRule(), fields);
    expect(after.count(counted(1, 1)).map(brief)).toMatchObject([{ kind: 'fired', count: 3, startedAt: 1 }]);
    const firing = store(fields, after);
    expect(firing).toMatchObject({ state: 'firing', lastTriggeredAt: String((NOW_S + 1) * 1_000) });
    const last = new WatchedRule(makeRule(), firing);
    expect(last.isFiring).toBe(true);
    expect(last.tick((NOW_S + 60) * 1_000)).toHaveLength(1);
    const resolved = store(firing, last);
    expect(resolved).toMatchObject({ state: 'ok', lastTriggeredAt: String((NOW_S + 1) * 1_000) });
    expect(resolved).not.toHaveProperty('notifiedAt');
    expect(last.takeChanges()).toBeUndefined();
  });

  it('reminds each time that its renotifyAfter has passed while it fires, and counts the reminders', () => {
    const rule = makeRule({ threshold: 1, timeWindow: '10m', renotifyAfter: '60s' });
    let watched = new WatchedRule(rule);
    watched.count(counted(0, 1));
    let fields = store({}, watched);
    const kinds: string[] = [];
    for (let after = 1; after <= 190; after += 1) {
      const items = watched.tick((NOW_S + after) * 1_000);
      kinds.push(...items.map(({ kind, repeat }) => `${after} ${kind} ${repeat}`));
      fields = store(fields, watched);
      watched = new WatchedRule(rule, fields);
    }
    expect(kinds).toEqual(['60 renotified 1', '120 renotified 2', '180 renotified 3']);
    const items = watched.tick((NOW_S + 3_600) * 1_000);
    expect(items.map(({ kind }) => kind)).toEqual(['resolved']);
  });

  it('reminds of nothing that has fallen below its threshold, though its bucket is not over', () => {
    const watched = new WatchedRule(makeRule({ threshold: 1, timeWindow: '10s', renotifyAfter: '11s' }));
    watched.count(counted(0, 1));
    expect(watched.tick((NOW_S + 11) * 1_000)).toEqual([]);
    expect(watched.tick((NOW_S + 12) * 1_000).map(({ kind }) => kind)).toEqual(['resolved']);
  });

  it('a firing ends with its rule, and the rule that begins anew still knows when it fired last', () => {
    const watched = new WatchedRule(makeRule());
    expect(watched.end(0)).toBeUndefined();
    watched.count(counted(0, 3));
    const end = watched.end((NOW_S + 4) * 1_000);
    expect(end?.isCutOff).toBe(true);
    expect(end && brief(end)).toMatchObject({
      kind: 'resolved',
      count: 3,
      peak: 3,
      startedAt: 0,
      resolvedAt: 4,
    });
    const fresh = watched.beginAnew(makeRule({ version: 2, generation: 2 }));
    expect(fresh.isFiring).toBe(false);
    expect(store({}, fresh)).toEqual({ lastTriggeredAt: String(NOW_S * 1_000) });
    expect(fresh.count(counted(0, 2))).toEqual([]);
  });
});

describe('the id of a firing', () => {
  it('is a UUID that rule, generation and start decide', () => {
    const id = nameFiring(makeRule(), NOW_S * 1_000);
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(nameFiring(makeRule({ name: 'other', version: 7 }), NOW_S * 1_000)).toBe(id);
    const others = [
      nameFiring(makeRule({ generation: 2 }), NOW_S * 1_000),
      nameFiring(makeRule({ id: '0190a5e0-0000-7000-8000-0000000000bb' }), NOW_S * 1_000),
      nameFiring(makeRule(), NOW_S * 1_000 + 1_000),
    ];
    expect(new Set([id, ...others]).size).toBe(4);
  });
});
