import type { OutboxItem } from '@logpond/db/alert-windows';
import { describe, expect, it } from 'vitest';
import { makeHistoryRow, makeJobs } from './relay.ts';
import { makeRule, NOW_S } from './rule.test-support.ts';

const email = (...recipients: string[]) => ({ type: 'email' as const, config: { recipients } });
const webhook = (url: string) => ({ type: 'webhook' as const, config: { url } });
const RULE = makeRule({
  notifications: [
    email('a@example.com', 'b@example.com'),
    webhook('https://example.com/1'),
    email('a@example.com'),
  ],
});
const FIRED: OutboxItem = {
  firingId: '0190a5e0-0000-8000-8000-000000000001',
  kind: 'fired',
  repeat: 0,
  projectId: RULE.projectId,
  rule: RULE,
  count: 3,
  firedCount: 3,
  peak: 3,
  startedAtMs: NOW_S * 1_000,
  resolvedAtMs: null,
  atMs: NOW_S * 1_000,
};
const RENOTIFIED: OutboxItem = { ...FIRED, kind: 'renotified', repeat: 2, count: 5, peak: 8 };
const RESOLVED: OutboxItem = {
  ...FIRED,
  kind: 'resolved',
  count: 1,
  peak: 9,
  resolvedAtMs: FIRED.startedAtMs + 9_000,
};

describe('the jobs of a transition', () => {
  it('are one for each recipient and each webhook, under ids that are the same each time', () => {
    const jobs = makeJobs(FIRED);
    expect(jobs.map(({ channel, target }) => `${channel} ${target}`)).toEqual([
      'email a@example.com',
      'email b@example.com',
      'webhook https://example.com/1',
    ]);
    const ids = [FIRED, RENOTIFIED, { ...RENOTIFIED, repeat: 3 }].flatMap((item) =>
      makeJobs(item).map(({ id }) => id),
    );
    expect(new Set(ids).size).toBe(9);
    expect(makeJobs(structuredClone(FIRED)).map(({ id }) => id)).toEqual(jobs.map(({ id }) => id));
  });

  it('an end is told only where the rule asks for it', () => {
    expect(makeJobs(RESOLVED)).toEqual([]);
    const told: OutboxItem = { ...RESOLVED, rule: { ...RULE, notifyResolved: true } };
    expect(makeJobs(told)).toHaveLength(3);
    expect(makeJobs({ ...told, isCutOff: true })).toEqual([]);
  });
});

describe('the history of a firing', () => {
  it('the later transition counts, and the count stays that with which it fired', () => {
    const [fired, renotified, resolved] = [FIRED, RENOTIFIED, RESOLVED].map(makeHistoryRow);
    expect(fired).toMatchObject({ firingId: FIRED.firingId, count: 3, resolvedAtMs: null, threshold: 3 });
    expect(renotified).toMatchObject({ count: 3, peak: 8 });
    expect(resolved).toMatchObject({ count: 3, peak: 9, resolvedAtMs: RESOLVED.resolvedAtMs });
    const versions = [fired, renotified, resolved].map((row) => row?.version ?? 0);
    expect(versions).toEqual(versions.toSorted((one, other) => one - other));
    expect(new Set(versions).size).toBe(3);
  });
});
