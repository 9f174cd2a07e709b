import type { AlertCondition } from '@logpond/schema/alert-condition';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { EntryColumns } from './entry-columns.ts';
import { columnsOf, entryOf, isMatch, matchAll, ruleOf } from './matcher-fixture.ts';
import { ProjectMatcher } from './matcher.ts';

/** Characters with unusual cases; see literal-triggers.ts. */
const PIECES = [
  'disk',
  'Disk',
  'k',
  '\u212a',
  'i',
  '\u0130',
  '\u0307',
  'ß',
  'Σ',
  'σ',
  'ς',
  'ОШ',
  'ош',
  '日本',
  ' ',
  'a',
  '😀',
  'x'.repeat(130),
];
const words = fc
  .array(fc.constantFrom(...PIECES), { minLength: 1, maxLength: 5 })
  .map((parts) => parts.join(''));

describe('ProjectMatcher', () => {
  it('finds in one pass what a loop of every rule over every entry finds', () => {
    const operator = fc.constantFrom(
      'contains',
      'not_contains',
      'starts_with',
      'equals',
      'not_equals',
      'in',
      'not_in',
    );
    const rule = fc.record({ operator, texts: fc.array(words, { minLength: 1, maxLength: 3 }) });
    const run = (
      drafts: { operator: AlertCondition['operator']; texts: string[] }[],
      messages: string[],
    ): void => {
      const rules = drafts.map(({ operator, texts }) =>
        ruleOf('message', operator, operator.endsWith('in') ? texts : (texts[0] ?? '')),
      );
      const expected = messages.flatMap((message, row) =>
        drafts.flatMap(({ operator, texts: [first = '', ...others] }, index) => {
          const yes = {
            equals: message === first,
            in: message === first || others.includes(message),
            contains: message.toLowerCase().includes(first.toLowerCase()),
            starts_with: message.toLowerCase().startsWith(first.toLowerCase()),
          }[operator.replace('not_', '')];
          return yes !== operator.startsWith('not_') ? [`${index}:${row}`] : [];
        }),
      );
      expect(
        matchAll(
          rules,
          messages.map((message) => entryOf({ message })),
        ),
      ).toEqual(expected.toSorted());
    };
    const rules = fc.array(rule, { minLength: 1, maxLength: 20 });
    fc.assert(fc.property(rules, fc.array(words, { minLength: 1, maxLength: 6 }), run), { numRuns: 2000 });
  });

  it('tells of each match once, also of a rule that says the same twice', () => {
    const rules = [ruleOf('message', 'in', ['a', 'a']), ruleOf('message', 'contains', 'kk')];
    expect(matchAll(rules, [entryOf({ message: 'a' }), entryOf({ message: 'kk kk K\u212a' })])).toEqual([
      '0:0',
      '1:1',
    ]);
  });

  it('answers for a pair of level and service what it answers row by row, also beyond what it remembers', () => {
    const rules = [
      ruleOf('level', 'gte', 'warn'),
      ruleOf('service', 'contains', '7'),
      ruleOf('service', 'regex', '^s1'),
    ];
    const matcher = new ProjectMatcher(rules);
    expect([matcher.needsDigest, matcher.needsColumns]).toEqual([true, false]);
    for (let round = 0; round < 2; round += 1) {
      for (let index = 0; index < 700; index += 1) {
        const service = `s${index}`;
        const level = (index % 5) + 1;
        const expected = [level >= 3, service.includes('7'), service.startsWith('s1')];
        expect(matcher.matchDigest(level, service)).toEqual([0, 1, 2].filter((rule) => expected[rule]));
        expect(matcher.matchDigest(6 - level, service)).toHaveLength(
          [6 - level >= 3, expected[1], expected[2]].filter(Boolean).length,
        );
      }
    }
  });

  it('remembers its answers, but not for ever more pairs', () => {
    const matcher = new ProjectMatcher([ruleOf('level', 'gte', 'warn')]);
    const first = matcher.matchDigest(3, 'a');
    expect(matcher.matchDigest(3, 'a')).toBe(first);
    for (let index = 0; index < 1000; index += 1) matcher.matchDigest(3, `s${index}`);
    expect(matcher.matchDigest(3, 'a')).not.toBe(first);
    expect(matcher.matchDigest(3, 'a')).toEqual(first);
  });

  it('looks at the rows it is given only, and at no column that no rule asks for', () => {
    const refuse = (): never => {
      throw new Error('not asked for');
    };
    const entries = ['disk 1', 'disk 2', 'disk 3'].map((message) => entryOf({ message }));
    const { rows, messages } = columnsOf(entries);
    const columns: EntryColumns = {
      rows,
      messages,
      levels: refuse,
      services: refuse,
      metadata: refuse,
      traceId: refuse,
    };
    const found: number[] = [];
    const matcher = new ProjectMatcher([
      ruleOf('message', 'contains', 'disk'),
      ruleOf('message', 'regex', 'disk'),
    ]);
    matcher.matchRows(columns, 1, 2, (_rule, row) => found.push(row));
    expect(found).toEqual([1, 1]);
    expect([matcher.needsDigest, matcher.needsColumns]).toEqual([false, true]);
    new ProjectMatcher([ruleOf('level', 'equals', 'warn')]).matchRows(
      { rows, messages: refuse, levels: refuse, services: refuse, metadata: refuse, traceId: refuse },
      0,
      rows,
      refuse,
    );
  });

  it('keeps a byte order mark, which is a character of the text', () => {
    expect(isMatch(ruleOf('message', 'equals', '\ufeffa'), entryOf({ message: '\ufeffa' }))).toBe(true);
    expect(isMatch(ruleOf('message', 'regex', '^a'), entryOf({ message: '\ufeffa' }))).toBe(false);
  });

  it('reads lone surrogates in rules as they are stored in entries', () => {
    const entry = entryOf({ service: 'a\ufffd', message: 'x\ufffdy 😀', metadata: '{"k\ufffd":1}' });
    const lone = '\ud83d';
    expect(isMatch(ruleOf('service', 'equals', `a${lone}`), entry)).toBe(true);
    expect(isMatch({ ...ruleOf('level', 'exists'), service: `a${lone}` }, entry)).toBe(true);
    expect(isMatch({ ...ruleOf('message', 'exists'), service: `a${lone}` }, entry)).toBe(true);
    expect(isMatch(ruleOf('message', 'contains', `x${lone}y`), entry)).toBe(true);
    expect(isMatch(ruleOf('message', 'contains', ` ${lone}`), entry)).toBe(false);
    expect(isMatch(ruleOf(`metadata.k${lone}`, 'exists'), entry)).toBe(true);
  });

  it('matches nothing by a pattern that checkPattern refuses', () => {
    expect(isMatch(ruleOf('message', 'regex', '(?=hello)'), entryOf())).toBe(false);
  });
});
