import { z } from 'zod';
import { describeValue } from './describe-value.ts';

type Issue = z.core.$ZodRawIssue;

const NAMES_SHOWN_MAX = 5;

/** What zod calls the types of JSON, in words. */
const TYPE_WORDS: Readonly<Record<string, string>> = {
  string: 'a text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  object: 'an object',
  record: 'an object',
  array: 'an array',
};

const FORMAT_WORDS: Readonly<Record<string, string>> = {
  email: 'an e-mail address such as ops@example.org',
  uuid: 'a UUID',
  url: 'a URL',
};

/**
 * The sentence of a problem that a schema found: what was expected, and what came. For `error` of safeParse; undefined
 * for problems that say it themselves. A text is told only by its length where that is the problem: it may be a secret.
 */
export function describeIssue(issue: Issue): string | undefined {
  switch (issue.code) {
    case 'too_small':
    case 'too_big':
      return describeSize(issue);
    case 'unrecognized_keys':
      return describeKeys(issue);
    case 'invalid_key':
      return issue.issues[0]?.message;
    case 'invalid_union':
      return describeUnion(issue);
    case 'invalid_type':
      return say(TYPE_WORDS[issue.expected] ?? issue.expected, issue.input);
    case 'invalid_value':
      return say(sayOneOf(issue.values), issue.input);
    case 'invalid_format':
      return say(
        FORMAT_WORDS[issue.format] ?? `a text of the form ${issue.pattern ?? issue.format}`,
        issue.input,
      );
    case 'invalid_element':
    case 'not_multiple_of':
    case 'custom':
      return undefined;
  }
}

/** The sentence of a schema that knows better what it expects: for `error` of a schema or check. */
export function sayExpected(what: string): (issue: { input?: unknown }) => string {
  return ({ input }) => say(what, input);
}

function say(what: string, value: unknown): string {
  return `expected ${what}, got ${describeValue(value)}`;
}

function sayOneOf(values: readonly unknown[]): string {
  const [only] = values;
  return values.length === 1 ? String(only) : `one of ${values.join(', ')}`;
}

function describeSize(issue: Extract<Issue, { code: 'too_small' | 'too_big' }>): string {
  const isLeast = issue.code === 'too_small';
  const bound = String(isLeast ? issue.minimum : issue.maximum);
  const { input } = issue;
  if (issue.origin !== 'string' && issue.origin !== 'array') {
    return say(`${bound} or ${isLeast ? 'more' : 'less'}`, input);
  }
  const unit = issue.origin === 'string' ? 'character' : 'item';
  const limit = `${isLeast ? 'at least' : 'at most'} ${bound} ${unit}${bound === '1' ? '' : 's'}`;
  return typeof input === 'string' ? `expected ${limit}, got ${input.length}` : say(limit, input);
}

function describeKeys(issue: Extract<Issue, { code: 'unrecognized_keys' }>): string {
  const known = issue.inst instanceof z.ZodObject ? Object.keys(issue.inst.shape) : [];
  return `expected only the fields ${known.join(', ')}, got ${listNames(issue.keys)}`;
}

/** Names that a client made up, for an error sentence: the first five, each cut. */
export function listNames(names: readonly string[]): string {
  const shown = names.slice(0, NAMES_SHOWN_MAX).map((name) => describeValue(name));
  const left = names.length - shown.length;
  return [...shown, ...(left > 0 ? [`and ${left} more`] : [])].join(', ');
}

function describeUnion(issue: Extract<Issue, { code: 'invalid_union' }>): string | undefined {
  const { discriminator, input } = issue;
  const options: unknown = Reflect.get(issue, 'options');
  if (discriminator === undefined || !Array.isArray(options)) return undefined;
  const value: unknown =
    typeof input === 'object' && input !== null ? Reflect.get(input, discriminator) : undefined;
  return say(sayOneOf(options), value);
}
