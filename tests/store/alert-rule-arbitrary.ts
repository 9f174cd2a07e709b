import type { MatchableRule } from '@logpond/alerting/matcher';
import { ALERT_OPERATORS, alertConditionSchema } from '@logpond/schema/alert-condition';
import { LEVELS } from '@logpond/schema/log-entry';
import type { CheckedEntry } from '@logpond/schema/log-entry';
import fc from 'fast-check';
import { NOW_NS } from './log-store-fixture.ts';

/** Texts that one side might read otherwise: cases, line breaks, wildcards, numbers in all spellings. */
const WORDS =
  'disk|Disk Full|DIS\u212a|\u0130stanbul|i\u0307|ı|I|größe|GRÖSSE|GRÖẞE|ΣΑΣ|σας|ας|σ|Α_Σ|ОШИБКА|ошибка|日本語|😀|\u{10400}';
const SIGNS = `100%|a_b|a\\b|\\|%|a\nb|x\n|\t|\0|"q"|it's|{}|null|true|false||5 |5\n|Infinity|NaN|0x10|05|5.|.5`;
const NUMERALS =
  '5 -5 5.0 1.5 1.50 -0 0 1e3 1000 1E+3 1e21 1e-7 0.1 0.30000000000000004 9007199254740991 9007199254740993 18446744073709551615 18446744073709551616 12345678901234567890123 -12345678901234567890123 1e400 -1e400 1e-400 123456789012345680000 1.7976931348623157e308 2.2250738585072014e-308';
/** Numbers in all spellings of JSON. */
export const NUMBERS = NUMERALS.split(' ');
const TEXTS = [...WORDS.split('|'), ...SIGNS.split('|'), ...NUMBERS];
export const TRACES = [
  '0af76519-16cd-43dd-8448-eb211c80319c',
  '0af7651916cd43dd8448eb211c80319c',
  '0AF7651916CD43DD8448EB211C80319C',
  '00000000-0000-0000-0000-000000000000',
  '00000000000000000000000000000000',
  'req-1',
  'REQ-1',
  '12',
  '3',
  '0af7',
];
const SERVICES = ['api', 'API', 'größe', 'a%b_c\\', '12', '1.5', 'disk'];
const KEYS = ['a', 'b', 'a.b', 'größe', 'a"b', '', '0', '__proto__', 'a\\'];
const PATHS = ['a', 'b', 'a.b', 'a.a.b', 'größe', 'a"b', '0', 'a.0', '.', 'a.', '__proto__', 'a\\', 'zz'];

const text = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...TEXTS) },
  {
    weight: 1,
    arbitrary: fc.tuple(fc.constantFrom(...TEXTS), fc.constantFrom(...TEXTS)).map(([a, b]) => `${a}${b}`),
  },
  { weight: 1, arbitrary: fc.string({ unit: 'grapheme', maxLength: 4 }).map((one) => one.toWellFormed()) },
);
const json: fc.Arbitrary<string> = fc.letrec<{ value: string; object: string }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.constantFrom('null', 'true', 'false', ...NUMBERS),
    text.map((one) => JSON.stringify(one)),
    fc.double({ noNaN: true, noDefaultInfinity: true }).map((one) => JSON.stringify(one)),
    fc.array(tie('value'), { maxLength: 3 }).map((list) => `[${list.join(',')}]`),
    tie('object'),
  ),
  object: fc
    .array(fc.tuple(fc.constantFrom(...KEYS), tie('value')), { maxLength: 4 })
    .map((pairs) => [...new Map(pairs)].map(([key, value]) => `${JSON.stringify(key)}:${value}`))
    .map((members) => `{${members.join(',')}}`),
})).object;
/** Entries with few different values in each field, all of them awkward. */
export const entries: fc.Arbitrary<CheckedEntry> = fc.record({
  timeNs: fc.constant(NOW_NS),
  level: fc.integer({ min: 1, max: 5 }),
  service: fc.constantFrom(...SERVICES),
  message: text,
  metadataJson: json,
  traceId: fc.option(fc.constantFrom(...TRACES), { nil: undefined }),
});

const PATTERNS = [
  '^Disk',
  '(?i)^disk',
  '^[0-9.]+$',
  'a.b',
  '\\pL{3}',
  'ΣΑ',
  '(?i)σας',
  '[^a]$',
  '\\bb',
  '(?m)^b',
  'x\\s',
  '.',
  '^$',
  '(?-s)a.b',
  'K',
  '(?i)k',
];
const field = fc.oneof(
  fc.constantFrom('level', 'service', 'message', 'trace_id'),
  fc.constantFrom(...PATHS).map((path) => `metadata.${path}`),
);
/** Rules of every operator on every field, as their schema lets them pass. */
export const rules: fc.Arbitrary<MatchableRule> = fc
  .record({
    field,
    operator: fc.constantFrom(...ALERT_OPERATORS),
    text: fc.oneof(text, fc.constantFrom(...TRACES, ...SERVICES)),
    scalar: fc.oneof(
      text,
      fc.double({ noNaN: true, noDefaultInfinity: true }),
      fc.boolean(),
      fc.constantFrom(5, 1000, 1.5, 0.1, 1e21),
    ),
    number: fc.oneof(
      fc.constantFrom(...NUMBERS.filter((one) => Number.isFinite(Number(one)))),
      fc.double({ noNaN: true, noDefaultInfinity: true }),
      fc.integer({ min: -6, max: 6 }),
    ),
    list: fc.array(
      fc.oneof(text, fc.integer({ min: -6, max: 6 }), fc.boolean(), fc.constantFrom(...TRACES, ...SERVICES)),
      { minLength: 1, maxLength: 4 },
    ),
    levels: fc.array(fc.constantFrom(...LEVELS, 'ERROR'), { minLength: 1, maxLength: 3 }),
    pattern: fc.constantFrom(...PATTERNS),
    service: fc.option(fc.constantFrom(...SERVICES), { nil: undefined, freq: 6 }),
  })
  .map((draft) => {
    const isSet = draft.operator === 'in' || draft.operator === 'not_in';
    const valueOf = (): unknown => {
      if (draft.operator === 'exists') return undefined;
      if (draft.operator === 'regex') return draft.pattern;
      if (['contains', 'not_contains', 'starts_with'].includes(draft.operator)) return draft.text;
      if (draft.field === 'level') return isSet ? draft.levels : draft.levels[0];
      if (isSet) return draft.list;
      return ['gt', 'gte', 'lt', 'lte'].includes(draft.operator) ? draft.number : draft.scalar;
    };
    const condition = {
      field: draft.field,
      operator: draft.operator,
      value: valueOf(),
      threshold: 1,
      timeWindow: '1m',
    };
    return { condition, service: draft.service };
  })
  .filter(({ condition }) => alertConditionSchema.safeParse(condition).success)
  .map(({ condition, service }) => ({
    id: 'rule',
    condition: alertConditionSchema.parse(condition),
    service,
  }));
