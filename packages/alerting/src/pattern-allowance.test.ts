import { describe, expect, it } from 'vitest';
import { columnsOf, entryOf, ruleOf } from './matcher-fixture.ts';
import { ProjectMatcher } from './matcher.ts';
import { PatternAllowance } from './pattern-allowance.ts';

/** Texts that are asked about, of so many bytes each of which takes so long; beginning with a full allowance. */
function countAsked(texts: number, bytes: number, nsPerByte: number): number {
  let nowMs = 0;
  const allowance = new PatternAllowance(() => nowMs);
  let asked = 0;
  allowance.begin();
  for (let text = 0; text < texts; text += 1) {
    if (allowance.admit(bytes)) {
      asked += 1;
      nowMs += (bytes * nsPerByte) / 1e6;
    }
    allowance.meter();
  }
  allowance.end();
  return asked;
}

describe('the allowance of patterns', () => {
  it.each([20, 1_000, 65_536])('never runs out by ordinary patterns: texts of %i bytes', (bytes) => {
    const texts = Math.ceil(100e6 / bytes);
    expect(countAsked(texts, bytes, 40)).toBe(texts);
  });

  it('leaves a hostile pattern a second, and then what its texts earn', () => {
    // 40 ms a text, of which 0.2 ms are earned.
    const asked = countAsked(100_000, 4_000, 10_000);
    expect(asked).toBeGreaterThan(25 + 500);
    expect(asked).toBeLessThan(25 + 520);
  });

  it('is overdrawn by one text at most, which is paid back before another is asked', () => {
    let nowMs = 0;
    const allowance = new PatternAllowance(() => nowMs);
    allowance.begin();
    expect(allowance.admit(60_000)).toBe(true);
    nowMs += 2_000;
    allowance.meter();
    // A second is missing: 3 ms are earned each time.
    for (let text = 0; text < 330; text += 1) expect(allowance.admit(60_000)).toBe(false);
    for (let text = 0; text < 10; text += 1) allowance.admit(60_000);
    expect(allowance.admit(60_000)).toBe(true);
  });

  it('does not charge what is excluded, such as inflating a column, nor what lies outside its stretches', () => {
    let nowMs = 0;
    const allowance = new PatternAllowance(() => nowMs);
    const { messages, ...columns } = columnsOf([entryOf(), entryOf()]);
    const inflate = (): ReturnType<typeof messages> => {
      nowMs += 1_500;
      return messages();
    };
    const matcher = new ProjectMatcher([ruleOf('message', 'regex', 'hel+o')], allowance);
    const found: number[] = [];
    for (let round = 0; round < 3; round += 1) {
      nowMs += 5_000;
      matcher.matchRows({ ...columns, messages: inflate }, 0, 2, (_rule, row) => found.push(row));
    }
    expect(found).toEqual([0, 1, 0, 1, 0, 1]);
    expect(matcher.takeSkipped()).toBeUndefined();
  });

  it('tells what was skipped, once', () => {
    let nowMs = 0;
    const allowance = new PatternAllowance(() => (nowMs += 2_000));
    const rules = ['a', 'b', 'c'].map((id) => ({ ...ruleOf('message', 'regex', 'x'), id }));
    const contains = ruleOf('message', 'contains', 'hello');
    const matcher = new ProjectMatcher([...rules, contains], allowance);
    const found: number[] = [];
    const columns = columnsOf([entryOf(), entryOf(), entryOf()]);
    matcher.matchRows(columns, 0, 3, (rule) => found.push(rule));
    expect(found).toEqual([3, 3, 3]);
    expect(matcher.takeSkipped()).toEqual({ ruleIds: ['a', 'b', 'c'], entries: 9 });
    expect(matcher.takeSkipped()).toBeUndefined();
  });

  it('does not remember that a service was not asked about', () => {
    let nowMs = 0;
    let costMs = 1_000.05;
    const allowance = new PatternAllowance(() => (nowMs += costMs));
    const matcher = new ProjectMatcher([ruleOf('service', 'regex', '^a')], allowance);
    expect(matcher.matchDigest(3, 'a1')).toEqual([0]);
    expect(matcher.matchDigest(3, 'a2', 7)).toEqual([]);
    expect(matcher.takeSkipped()).toEqual({ ruleIds: ['rule'], entries: 7 });
    // What was overdrawn is paid back.
    costMs = 0;
    for (let times = 0; times < 1_000_000 && matcher.matchDigest(3, 'a2').length === 0; times += 1);
    expect(matcher.matchDigest(3, 'a2')).toEqual([0]);
    matcher.takeSkipped();
    expect(matcher.matchDigest(3, 'a2')).toEqual([0]);
    expect(matcher.takeSkipped()).toBeUndefined();
  });
});
