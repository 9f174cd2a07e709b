import { z } from 'zod';
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
const WINDOW_MIN_MS = 1000;
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

/** `<n>s|m|h|d`, 1 s to 7 d, kept as written. */
export const alertDurationSchema = z
  .string()
  .refine(
    (text) => {
      const ms = text.endsWith('w') ? undefined : parseDurationMs(text);
      return ms !== undefined && ms >= WINDOW_MIN_MS && ms <= ALERT_WINDOW_MAX_MS;
    },
    {
      error: (issue) => `expected <n>s, <n>m, <n>h or <n>d from 1s to 7d, got ${JSON.stringify(issue.input)}`,
    },
  )
  .meta({ examples: ['5m'] });

export const alertScalarSchema = z.union([z.string().max(VALUE_LENGTH_MAX), z.number(), z.boolean()]);
export const alertThresholdSchema = z.int().min(1).max(THRESHOLD_MAX);

const COMPARISONS: readonly AlertOperator[] = ['gt', 'gte', 'lt', 'lte'];
const TEXT_OPERATORS: readonly AlertOperator[] = ['contains', 'not_contains', 'starts_with', 'regex'];

/** What is wrong with the value of a condition, or undefined. */
function explainValue({ field, operator, value }: AlertCondition): string | undefined {
  if (operator === 'exists') return value === undefined ? undefined : 'expected no value for exists';
  if (value === undefined) return 'expected a value, got nothing';
  const isSet = operator === 'in' || operator === 'not_in';
  if (Array.isArray(value) !== isSet) return `expected ${isSet ? 'an array' : 'one value'} for ${operator}`;
  if (TEXT_OPERATORS.includes(operator)) {
    return typeof value === 'string' && value !== '' ? undefined : `expected a text for ${operator}`;
  }
  const values = Array.isArray(value) ? value : [value];
  if (field === 'level') {
    const areLevels = values.every((one) => typeof one === 'string' && levelNumberOf(one) !== undefined);
    return areLevels ? undefined : `expected ${LEVELS.join(', ')}`;
  }
  if (!COMPARISONS.includes(operator)) return undefined;
  const isNumber = (one: AlertScalar): boolean =>
    typeof one === 'number' || (typeof one === 'string' && one.trim() !== '' && Number.isFinite(Number(one)));
  return values.every(isNumber) ? undefined : `expected a number for ${operator}`;
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
    .regex(
      /^(?:level|service|message|trace_id|metadata\.[^]+)$/,
      'expected level, service, message, trace_id or metadata.<path>',
    ),
  operator: z.enum(ALERT_OPERATORS),
  value: z
    .union([alertScalarSchema, z.array(alertScalarSchema).min(1).max(VALUES_MAX)])
    .nullish()
    .transform((value) => value ?? undefined),
  threshold: alertThresholdSchema,
  timeWindow: alertDurationSchema,
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
