import type { AlertCondition } from '@logpond/schema/alert-condition';
import { toTraceKey } from '@logpond/schema/trace-key';
import { compilePattern } from './pattern.ts';

/** The operators without their negations. */
export type PlainOperator = Exclude<AlertCondition['operator'], 'not_equals' | 'not_contains' | 'not_in'>;

/** What a condition asks of a value, once each of its parts has the type that its operator needs. */
export type Question = {
  operator: PlainOperator;
  /** Whether the answer is turned round; of what is absent, every plain operator says no. */
  isNegated: boolean;
  /** The values as text; one unless for `in`. Without lone surrogates, as what is stored. */
  texts: readonly string[];
  /** For gt to lte; NaN otherwise, which no number is greater or less than. */
  bound: number;
};

const PLAIN = { not_equals: 'equals', not_contains: 'contains', not_in: 'in' } as const;
const JSON_NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

/** Reads the operator and value of a condition; the value fits the operator (alert-condition.ts). */
export function readQuestion({ operator, value }: Pick<AlertCondition, 'operator' | 'value'>): Question {
  const values = value === undefined ? [] : Array.isArray(value) ? value : [value];
  const isNegated = operator === 'not_equals' || operator === 'not_contains' || operator === 'not_in';
  return {
    operator: isNegated ? PLAIN[operator] : operator,
    isNegated,
    texts: values.map((one) => String(one).toWellFormed()),
    bound: Number(values[0] ?? Number.NaN),
  };
}

/** The number that a text wholly is, as JSON writes numbers; else undefined. */
export function readJsonNumber(text: string): number | undefined {
  return JSON_NUMBER.test(text) ? Number(text) : undefined;
}

/** `of` tells which form of a text is asked: as it is, or in lower case, which is made once for many tests. */
export type TextTest = { of: 'text' | 'lower'; test: (text: string) => boolean };

/** A question without its negation, asked of a text that is there. */
export function compileText({ operator, texts, bound }: Question): TextTest {
  const [first = ''] = texts;
  const lower = first.toLowerCase();
  switch (operator) {
    case 'exists':
      return { of: 'text', test: () => true };
    case 'equals':
    case 'in': {
      const wanted = new Set(texts);
      return { of: 'text', test: (text) => wanted.has(text) };
    }
    case 'contains':
      return { of: 'lower', test: (text) => text.includes(lower) };
    case 'starts_with':
      return { of: 'lower', test: (text) => text.startsWith(lower) };
    case 'regex':
      return { of: 'text', test: compilePattern(first) };
    case 'gt':
    case 'gte':
    case 'lt':
    case 'lte':
      return { of: 'text', test: (text) => compareNumber(operator, readJsonNumber(text), bound) };
  }
}

/** Whether a number is there and on the asked side of the bound. */
export function compareNumber(operator: PlainOperator, value: number | undefined, bound: number): boolean {
  if (value === undefined) return false;
  if (operator === 'gt') return value > bound;
  if (operator === 'gte') return value >= bound;
  if (operator === 'lt') return value < bound;
  return operator === 'lte' && value <= bound;
}

/** The same of a trace id: by equality, a UUID and its 32-hex form in any letter case are one trace. */
export function compileTrace(question: Question): TextTest {
  if (question.operator !== 'equals' && question.operator !== 'in') return compileText(question);
  const wanted = new Set(question.texts.map((text) => toTraceKey(text) ?? text));
  return { of: 'text', test: (text) => wanted.has(toTraceKey(text) ?? text) };
}
