import { listMatchingLevels, METADATA_PREFIX } from '@logpond/alerting/matcher';
import type { MatchableRule } from '@logpond/alerting/matcher';
import { checkPattern } from '@logpond/alerting/pattern';
import { readJsonNumber, readQuestion } from '@logpond/alerting/text-test';
import type { Question } from '@logpond/alerting/text-test';
import { splitMetadataPath } from '@logpond/schema/metadata-path';
import { matchTrace } from './log-sql.ts';
import { METADATA } from './metadata-sql.ts';
import type { SqlBindings } from './sql-bindings.ts';

/** A number as JSON writes it, and nothing else; \z, since $ is also before a last line break in other dialects. */
const JSON_NUMBER = String.raw`'^-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\\z'`;
const COMPARISONS = { gt: '>', gte: '>=', lt: '<', lte: '<=' } as const;
const SAFE_INTEGER_MAX = '9007199254740991';

/** The trace of an entry as it is shown; empty when it has none. */
const TRACE_TEXT = `multiIf(trace_form = 'uuid', toString(trace_key),
  trace_form = 'hex', replaceAll(toString(trace_key), '-', ''), trace_text)`;

/** The condition of a rule, with its service, in brackets: true of the rows whose entries ProjectMatcher matches. */
export function matchRule(bindings: SqlBindings, rule: MatchableRule): string {
  const conditions = [matchCondition(bindings, rule)];
  if (rule.service !== undefined && rule.service !== null) {
    conditions.push(`service = ${bindings.bind('String', rule.service.toWellFormed())}`);
  }
  return `(${conditions.join(' AND ')})`;
}

function matchCondition(bindings: SqlBindings, { condition }: MatchableRule): string {
  const { field } = condition;
  if (field === 'level') {
    return `level IN ${bindings.bind('Array(String)', listMatchingLevels(condition))}`;
  }
  const question = readQuestion(condition);
  const yes = matchField(bindings, field, question);
  return question.isNegated ? `NOT ${yes}` : yes;
}

/** A question without its negation, in brackets. */
function matchField(bindings: SqlBindings, field: string, question: Question): string {
  if (field === 'trace_id') return matchTraceQuestion(bindings, question);
  if (!field.startsWith(METADATA_PREFIX)) return matchText(bindings, field, question);
  const paths = splitMetadataPath(field.slice(METADATA_PREFIX.length).toWellFormed()).map((keys) =>
    keys.map((key) => bindings.bind('String', key)).join(', '),
  );
  return `(${paths.map((path) => matchValue(bindings, path, question)).join(' OR ')})`;
}

function matchTraceQuestion(bindings: SqlBindings, question: Question): string {
  if (question.operator === 'equals' || question.operator === 'in') {
    return `(${question.texts.map((text) => matchTrace(bindings, text)).join(' OR ')})`;
  }
  return `(trace_form != 'none' AND ${matchText(bindings, TRACE_TEXT, question)})`;
}

/** `text`: an expression. LIKE on the lower case of the message is what its text index knows. */
function matchText(bindings: SqlBindings, text: string, question: Question): string {
  const { operator, texts, bound } = question;
  const [first = ''] = texts;
  switch (operator) {
    case 'exists':
      return '(1 = 1)';
    case 'equals':
    case 'in':
      return `(${text} IN ${bindings.bind('Array(String)', texts)})`;
    case 'contains': {
      const pattern = `%${first.replace(/[\\%_]/g, String.raw`\$&`)}%`;
      return `(lowerUTF8(${text}) LIKE lowerUTF8(${bindings.bind('String', pattern)}))`;
    }
    case 'starts_with':
      return `startsWith(lowerUTF8(${text}), lowerUTF8(${bindings.bind('String', first)}))`;
    case 'regex':
      return checkPattern(first) === undefined
        ? `match(${text}, ${bindings.bind('String', first)})`
        : '(1 = 0)';
    case 'gt':
    case 'gte':
    case 'lt':
    case 'lte': {
      const limit = toNumber(bindings.bind('String', String(bound)));
      return `(match(${text}, ${JSON_NUMBER}) AND ${toNumber(text)} ${COMPARISONS[operator]} ${limit})`;
    }
  }
}

/** The value at a path of the metadata; `path`: bound keys. */
function matchValue(bindings: SqlBindings, path: string, question: Question): string {
  const { operator, texts, bound } = question;
  const type = `JSONType(${METADATA}, ${path})`;
  const float = `JSONExtractFloat(${METADATA}, ${path})`;
  const string = `JSONExtractString(${METADATA}, ${path})`;
  switch (operator) {
    case 'exists':
      // What is not there has this type too.
      return `(${type} != 'Null')`;
    case 'equals':
    case 'in':
      return matchEquality(bindings, path, texts);
    case 'contains':
    case 'starts_with':
    case 'regex': {
      const text = `multiIf(${type} = 'String', ${string}, ${type} = 'Double', toString(${float}), JSONExtractRaw(${METADATA}, ${path}))`;
      return `(${type} IN ('String', 'Int64', 'UInt64', 'Double', 'Bool') AND ${matchText(bindings, text, question)})`;
    }
    case 'gt':
    case 'gte':
    case 'lt':
    case 'lte': {
      const limit = toNumber(bindings.bind('String', String(bound)));
      const isNumber = `(${type} IN ('Int64', 'UInt64', 'Double') AND ${float} ${COMPARISONS[operator]} ${limit})`;
      return `(${isNumber} OR (${type} = 'String' AND ${matchText(bindings, string, question)}))`;
    }
  }
}

function matchEquality(bindings: SqlBindings, path: string, texts: readonly string[]): string {
  const type = `JSONType(${METADATA}, ${path})`;
  const float = `JSONExtractFloat(${METADATA}, ${path})`;
  const wanted = bindings.bind('Array(String)', texts);
  const isWhole = `(${float} = trunc(${float}) AND abs(${float}) <= ${SAFE_INTEGER_MAX})`;
  const conditions = [
    `(${type} = 'String' AND JSONExtractString(${METADATA}, ${path}) IN ${wanted})`,
    `(${type} IN ('Int64', 'UInt64', 'Bool') AND JSONExtractRaw(${METADATA}, ${path}) IN ${wanted})`,
    `(${type} = 'Double' AND ${isWhole} AND toString(toInt64(${float})) IN ${wanted})`,
  ];
  const numbers = texts.filter((text) => Number.isFinite(readJsonNumber(text)));
  if (numbers.length > 0) {
    const list = numbers.map((text) => toNumber(bindings.bind('String', text))).join(', ');
    conditions.push(`(${type} = 'Double' AND NOT ${isWhole} AND has([${list}], ${float}))`);
  }
  if (texts.includes('null')) {
    conditions.push(`(${type} = 'Null' AND JSONHas(${METADATA}, ${path}))`);
  }
  return `(${conditions.join(' OR ')})`;
}

/** The number that a text is which matches JSON_NUMBER; exact by `precise_float_parsing`, which is the default. */
function toNumber(text: string): string {
  return `toFloat64OrZero(${text})`;
}
