import { expect, it } from 'vitest';
import { z } from 'zod';
import { describeIssue, sayExpected } from './describe-issue.ts';

const schema = z
  .strictObject({
    text: z.string().min(2).max(4),
    one: z.string().min(1),
    whole: z.int().min(1).max(5),
    list: z.array(z.number()).min(1).max(2),
    mail: z.email(),
    id: z.uuid(),
    form: z.string().regex(/^q/),
    own: z.string().regex(/^q/, { error: sayExpected('a q') }),
    choice: z.enum(['a', 'b']),
    kind: z.discriminatedUnion('type', [
      z.object({ type: z.literal('x') }),
      z.object({ type: z.literal('y') }),
    ]),
    names: z.record(z.string().regex(/^n/, { error: sayExpected('an n') }), z.boolean()),
  })
  .partial();

it.each<[unknown, string, string]>([
  [{ text: 'a' }, 'text', 'expected at least 2 characters, got 1'],
  [{ text: 'abcde' }, 'text', 'expected at most 4 characters, got 5'],
  [{ text: 5 }, 'text', 'expected a text, got 5'],
  [{ one: '' }, 'one', 'expected at least 1 character, got 0'],
  [{ whole: 0 }, 'whole', 'expected 1 or more, got 0'],
  [{ whole: 6 }, 'whole', 'expected 5 or less, got 6'],
  [{ whole: 1.5 }, 'whole', 'expected a whole number, got 1.5'],
  [{ whole: 'x' }, 'whole', 'expected a number, got "x"'],
  [{ list: [] }, 'list', 'expected at least 1 item, got an empty array'],
  [{ list: [1, 2, 3] }, 'list', 'expected at most 2 items, got an array of 3'],
  [{ list: {} }, 'list', 'expected an array, got an object'],
  [{ mail: 'x' }, 'mail', 'expected an e-mail address such as ops@example.org, got "x"'],
  [{ id: 'x' }, 'id', 'expected a UUID, got "x"'],
  [{ form: 'x' }, 'form', 'expected a text of the form /^q/, got "x"'],
  [{ own: 'x' }, 'own', 'expected a q, got "x"'],
  [{ choice: 'c' }, 'choice', 'expected one of a, b, got "c"'],
  [{ kind: { type: 'z' } }, 'kind.type', 'expected one of x, y, got "z"'],
  [{ kind: {} }, 'kind.type', 'expected one of x, y, got nothing'],
  [{ names: { m: true } }, 'names.m', 'expected an n, got "m"'],
  [{ names: { n: 'yes' } }, 'names.n', 'expected true or false, got "yes"'],
  [null, '', 'expected an object, got null'],
])('%j: what was expected and what came', (value, path, message) => {
  const [issue] = schema.safeParse(value, { error: describeIssue }).error?.issues ?? [];
  expect([issue?.path.join('.'), issue?.message]).toEqual([path, message]);
});

it('fields that nobody knows are named beside those that there are, five of them', () => {
  const ask = (value: object): string | undefined =>
    z.strictObject({ a: z.string().optional(), b: z.string().optional() }).safeParse(value, {
      error: describeIssue,
    }).error?.issues[0]?.message;
  expect(ask({ a: '', c: 1 })).toBe('expected only the fields a, b, got "c"');
  const many = Object.fromEntries(Array.from({ length: 1000 }, (_, n) => [`f${n}`, 1]));
  expect(ask(many)).toBe('expected only the fields a, b, got "f0", "f1", "f2", "f3", "f4", and 995 more');
});
