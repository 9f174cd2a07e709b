import { z } from 'zod';
import { sayExpected } from './describe-issue.ts';
import { describeValue } from './describe-value.ts';
import { parseDurationMs } from './duration.ts';
import { levelNumberOf, levelOfNumber, LEVELS } from './log-entry.ts';

export const ALERT_OPERATORS = [
  'equals',
  'not_equals',
  'contains',
  'not_contains',
  'starts_with',
  'in',
  'not_in',
  'exists',
  'gt',
  'gte',
  'lt',
  'lte',
  'regex',
] as const;
type AlertOperator = (typeof ALERT_OPERATORS)[number];

const THRESHOLD_MAX = 1_000_000_000;
export const ALERT_WINDOW_MAX_MS = 604_800_000;
const VALUES_MAX = 100;
const VALUE_LENGTH_MAX = 1024;

type AlertScalar = string | number | boolean;

export type AlertCondition = {
  /** `level`, `service`, `message`, `trace_id` or `metadata.<path>`. */
  field: string;
  operator: AlertOperator;
  /** An array for `in` and `not_in`, absent for `exists`. Levels are in lower case. */
  value?: AlertScalar | AlertScalar[] | undefined;
  threshold: number;
  /** `<n>s|m|h|d`, 1 s to 7 d, as written. */
  timeWindow: string;
};

/** `<n>s|m|h|d` from `least` (written so too) to 7 d, kept as written. */
function durationFrom(least: '1s' | '1m', description: string): z.ZodType<string, string> {
  const leastMs = parseDurationMs(least) ?? 0;
  const error = sayExpected(`<n>s, <n>m, <n>h or <n>d from ${least} to 7d`);
  return z
    .string({ error })
    .refine(
      (text) => {
        const ms = text.endsWith('w') ? undefined : parseDurationMs(text);
        return ms !== undefined && ms >= leastMs && ms <= ALERT_WINDOW_MAX_MS;
      },
      { error },
    )
    .meta({
      pattern: '^[0-9]{1,9}[smhd]$',
      description: `${description}. <n>s, <n>m, <n>h or <n>d, from ${least} to 7d`,
      examples: ['5m'],
    });
}

const windowSchema = durationFrom('1s', 'How far back entries are counted');
/** More often than each minute, a mail could not go out, and a web server would be flooded. */
export const renotifyAfterSchema = durationFrom(
  '1m',
  'Pause between reminders while the rule fires; without it there are none',
);

export const alertScalarSchema = z.union([z.string().max(VALUE_LENGTH_MAX), z.number(), z.boolean()]);
export const alertThresholdSchema = wholeNumberSchema(THRESHOLD_MAX, 'a whole number').describe(
  `Matching entries in the window at which it fires, from 1 to ${THRESHOLD_MAX}`,
);

/** Whole numbers from 1 to `max`. */
export function wholeNumberSchema(max: number, what: string): z.ZodType<number, number> {
  const error = sayExpected(`${what} from 1 to ${max}`);
  return z.int({ error }).min(1, { error }).max(max, { error });
}

const COMPARISONS: readonly AlertOperator[] = ['gt', 'gte', 'lt', 'lte'];
const TEXT_OPERATORS: readonly AlertOperator[] = ['contains', 'not_contains', 'starts_with', 'regex'];

/** What is wrong with the value of a condition, or undefined. */
function explainValue({ field, operator, value }: AlertCondition): string | undefined {
  const expected = describeExpectedValue(field, operator);
  if (expected === undefined) {
    return value === undefined ? undefined : `expected no value for exists, got ${describeValue(value)}`;
  }
  const isSet = operator === 'in' || operator === 'not_in';
  if (value === undefined || Array.isArray(value) !== isSet) {
    return `expected ${isSet ? 'an array with ' : ''}${expected} for ${operator}, got ${describeValue(value)}`;
  }
  const wrong = [value].flat().filter((one) => !fitsOperator(field, operator, one));
  return wrong.length === 0
    ? undefined
    : `expected ${expected} for ${operator}, got ${describeValue(wrong[0])}`;
}

/** Undefined: no value at all. */
function describeExpectedValue(field: string, operator: AlertOperator): string | undefined {
  if (operator === 'exists') return undefined;
  if (TEXT_OPERATORS.includes(operator)) return 'a text that is not empty';
  if (field === 'level') return `one of ${LEVELS.join(', ')}`;
  return COMPARISONS.includes(operator) ? 'a number' : 'a text, a number, true or false';
}

function fitsOperator(field: string, operator: AlertOperator, value: AlertScalar): boolean {
  if (TEXT_OPERATORS.includes(operator)) return typeof value === 'string' && value !== '';
  if (field === 'level') return typeof value === 'string' && levelNumberOf(value) !== undefined;
  if (!COMPARISONS.includes(operator) || typeof value === 'number') return true;
  return typeof value === 'string' && value.trim() !== '' && Number.isFinite(Number(value));
}

/** Levels in lower case. */
function normaliseCondition(condition: AlertCondition): AlertCondition {
  if (condition.field !== 'level' || condition.value === undefined) return condition;
  const lower = (one: AlertScalar): AlertScalar =>
    typeof one === 'string' && levelNumberOf(one) !== undefined ? one.toLowerCase() : one;
  const value = Array.isArray(condition.value) ? condition.value.map(lower) : lower(condition.value);
  return { ...condition, value };
}

/** The fields of a condition, each by itself. */
export const alertConditionShape = {
  field: z
    .string()
    .max(512)
    .regex(/^(?:level|service|message|trace_id|metadata\.[^]+)$/, {
      error: sayExpected('level, service, message, trace_id or metadata.<path>'),
    }),
  operator: z.enum(ALERT_OPERATORS),
  value: z
    .union([alertScalarSchema, z.array(alertScalarSchema).min(1).max(VALUES_MAX)], {
      error: sayExpected(`a text, a number, true, false, or an array of 1 to ${VALUES_MAX} of them`),
    })
    .nullish()
    .transform((value) => value ?? undefined),
  threshold: alertThresholdSchema,
  timeWindow: windowSchema,
};

/** `condition` of a rule: its value fits its field and operator; levels come out in lower case. */
export const alertConditionSchema = z
  .strictObject(alertConditionShape)
  .superRefine((condition, context) => {
    const message = explainValue(condition);
    if (message !== undefined) context.addIssue({ code: 'custom', path: ['value'], message });
  })
  .transform(normaliseCondition);

/** Whether a condition on `level` matches a level; false for conditions that no list of levels stands for. */
export function matchesLevel({ operator, value }: AlertCondition, number: number): boolean {
  const level = levelOfNumber(number) ?? '';
  if (operator === 'exists') return true;
  if (Array.isArray(value)) return operator === 'not_in' ? !value.includes(level) : value.includes(level);
  const text = String(value).toLowerCase();
  const bound = levelNumberOf(text) ?? NaN;
  switch (operator) {
    case 'equals':
      return level === text;
    case 'not_equals':
      return level !== text;
    case 'contains':
      return level.includes(text);
    case 'not_contains':
      return !level.includes(text);
    case 'starts_with':
      return level.startsWith(text);
    case 'gt':
      return number > bound;
    case 'gte':
      return number >= bound;
    case 'lt':
      return number < bound;
    case 'lte':
      return number <= bound;
    case 'in':
    case 'not_in':
    case 'regex':
      return false;
  }
}
