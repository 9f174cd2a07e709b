import { readWindowSpec } from '@logpond/alerting/window';
import { describe, expect, it } from 'vitest';
import { RuleSet } from './rule-set.ts';
import type { ProjectRules } from './rule-set.ts';
import { makeRule, NOW_S, PROJECT } from './rule.test-support.ts';
import { ProjectTally } from './tally.ts';

/** A matcher has one list for all entries that are alike. */
const FIRST = [0];
const ALL = [0, 1, 2];

/** Rules with these windows, in this order. */
function makeProject(...timeWindows: string[]): ProjectRules {
  const { condition } = makeRule();
  const rules = timeWindows.map((timeWindow, index) =>
    makeRule({ id: `rule ${index}`, condition: { ...condition, threshold: 1_000, timeWindow } }),
  );
  const project = new RuleSet(rules.map((rule) => ({ rule, fields: {} }))).ofProject(PROJECT);
  if (project === undefined) throw new Error('expected a project with rules');
  return project;
}

/** As `<rule> <count> from <seconds before NOW_S> received <seconds after>`. */
function list(tally: ProjectTally): string[] {
  return [...tally.sum()].map(
    ({ rule, counted: { second, receivedSecond, count } }) =>
      `${rule.rule.id} ${count} from ${NOW_S - second} received ${receivedSecond - NOW_S}`,
  );
}

describe('ProjectTally', () => {
  it('what was received later than all before it stays behind it, however clocks differ', () => {
    const send = [12, 11, 11, 13, 12];
    const whole = new ProjectTally(makeProject('1m'));
    for (const after of send)
      whole.addAlike(FIRST, { second: NOW_S, receivedSecond: NOW_S + after, count: 1 });
    expect(list(whole)).toEqual(
      [12, 11, 13, 12].map((after) => `rule 0 ${after === 11 ? 2 : 1} from 0 received ${after}`),
    );
    const parts = send.map((after) => {
      const part = new ProjectTally(makeProject('1m'));
      part.addMatch(0, NOW_S, NOW_S + after);
      return list(part)[0]?.split(' ').at(-1);
    });
    expect(parts).toEqual(send.map(String));
  });

  it('old entries cost their windows one sum a bucket, whatever the number of seconds and rules', () => {
    const timeWindows = ['5m', '1h', '7d'];
    const tally = new ProjectTally(makeProject(...timeWindows));
    const seconds = 100_000;
    for (let age = 0; age < seconds; age += 1) {
      tally.addAlike(ALL, { second: NOW_S - age * 30, receivedSecond: NOW_S, count: 1 });
    }
    const sums = [...tally.sum()];
    const expected = timeWindows.map((timeWindow) => {
      const { bucketS, span } = readWindowSpec({ threshold: 1, timeWindow });
      return Math.min(span, Math.ceil((span * bucketS) / 30));
    });
    ALL.forEach((index) => {
      const own = sums.filter(({ rule }) => rule.rule.id === `rule ${index}`);
      expect(own.length).toBeLessThanOrEqual((expected[index] ?? 0) + 1);
      expect(own.length).toBeGreaterThan(1);
    });
  });

  it('sums up what no window of the rules counts not at all', () => {
    const tally = new ProjectTally(makeProject('1m', '5m'));
    tally.addAlike([0, 1], { second: NOW_S - 86_400, receivedSecond: NOW_S, count: 5 });
    tally.addMatch(0, NOW_S + 61, NOW_S);
    tally.addMatch(1, NOW_S + 60, NOW_S);
    expect(list(tally)).toEqual(['rule 1 1 from 0 received 0']);
    expect(tally.touchedRules).toBe(2);
  });
});
