import { listMatchingLevels } from '@logpond/alerting/matcher';
import { readWindowSpec } from '@logpond/alerting/window';
import type { AlertRuleDocument } from '@logpond/db/rule-change';
import { LEVELS } from '@logpond/schema/log-entry';
import type { NoticeItem } from './notice.ts';

/** Entries dated so far ahead of their reception are counted. */
const FUTURE_MAX_MS = 60_000;
/** Of `q` in a search. */
const SEARCH_TEXT_LENGTH_MAX = 512;

/** Of `traceId` in a search. */
const TRACE_LENGTH_MAX = 128;

/** A search, and whether it asks for exactly what the rule matches; else for that and more. */
export type SearchLink = { url: string; isExact: boolean };

/**
 * Times (ms since 1970) that hold the entries which a rule counted for these notifications: from the start of the
 * window, or the creation of the rule where that was later.
 */
export function findRange(
  rule: Pick<AlertRuleDocument, 'condition' | 'createdAt'>,
  items: readonly Pick<NoticeItem, 'startedAtMs' | 'atMs'>[],
): { fromMs: number; toMs: number } {
  const { bucketS, span } = readWindowSpec(rule.condition);
  const startMs = Math.min(...items.map(({ startedAtMs, atMs }) => Math.min(startedAtMs, atMs)));
  const bucket = Math.floor(startMs / 1_000 / bucketS);
  const windowMs = (bucket - span + 1) * bucketS * 1_000;
  const toMs = Math.max(...items.map(({ atMs }) => atMs)) + FUTURE_MAX_MS;
  return { fromMs: Math.min(Math.max(windowMs, Date.parse(rule.createdAt)), toMs), toMs };
}

/** The search for the entries of a rule, as far as its parameters can say what the rule matches. */
export function makeSearchLink(
  publicUrl: string,
  rule: Pick<AlertRuleDocument, 'condition' | 'projectId' | 'service'>,
  { fromMs, toMs }: { fromMs: number; toMs: number },
): SearchLink {
  const params = new URLSearchParams({
    projectId: rule.projectId,
    from: new Date(fromMs).toISOString(),
    to: new Date(toMs).toISOString(),
  });
  if (typeof rule.service === 'string') params.append('service', rule.service);
  const { parameters, isExact } = describeCondition(rule);
  for (const [name, value] of parameters) params.append(name, value);
  return { url: `${publicUrl.replace(/\/+$/, '')}/api/v1/logs?${params.toString()}`, isExact };
}

/** What these find is among what a search for the text in the message finds. */
const SUBSTRINGS: readonly string[] = ['equals', 'contains', 'starts_with'];
/** Words are left out by a search of another kind than that of a rule, which finds no more than it. */
const WORD = /^[\p{L}\p{N}]+$/u;

type Parameter = [name: string, value: string];
/** Parameters whose search finds all that a condition matches, and no more when `isExact`. */
type Described = { parameters: Parameter[]; isExact: boolean };

/** No filter at all. */
const ANYTHING: Described = { parameters: [], isExact: false };

function describeCondition({
  condition,
  service,
}: Pick<AlertRuleDocument, 'condition' | 'service'>): Described {
  const { field, operator } = condition;
  const values = listValues(condition.value);
  const isOneOf = operator === 'equals' || operator === 'in';
  switch (field) {
    case 'level': {
      const matched = listMatchingLevels(condition);
      if (matched.length === 0) return ANYTHING;
      return matched.length === LEVELS.length ? { parameters: [], isExact: true } : exactly('level', matched);
    }
    case 'service':
      if (operator === 'not_equals' || operator === 'not_in') return exactly('not.service', values);
      // Services are alternatives to each other, so a second one would widen the search.
      return isOneOf && typeof service !== 'string' ? exactly('service', values) : ANYTHING;
    case 'message':
      if (operator === 'exists') return { parameters: [], isExact: true };
      return describeText(operator, values[0] ?? '');
    case 'trace_id':
      if (operator !== 'equals' || (values[0] ?? '').length > TRACE_LENGTH_MAX) return ANYTHING;
      return exactly('traceId', values);
    default:
      return isOneOf ? exactly(field, values) : ANYTHING;
  }
}

/** An empty value is no filter. */
function exactly(name: string, values: readonly string[]): Described {
  return values.includes('')
    ? ANYTHING
    : { parameters: values.map((value): Parameter => [name, value]), isExact: true };
}

function describeText(operator: AlertRuleDocument['condition']['operator'], value: string): Described {
  const text = Array.from(value).slice(0, SEARCH_TEXT_LENGTH_MAX).join('');
  const isWhole = text === value && text !== '';
  if (operator === 'not_contains') {
    return isWhole && WORD.test(text) ? { parameters: [['not.q', text]], isExact: false } : ANYTHING;
  }
  const isRegex = operator === 'regex';
  // A part of a regular expression is another one, or none.
  if (isRegex ? !isWhole : !SUBSTRINGS.includes(operator) || text === '') return ANYTHING;
  return {
    parameters: [
      ['q', text],
      ['searchMode', isRegex ? 'regex' : 'substring'],
    ],
    isExact: isWhole && (isRegex || operator === 'contains'),
  };
}

function listValues(value: AlertRuleDocument['condition']['value']): string[] {
  if (value === undefined) return [];
  return (Array.isArray(value) ? value : [value]).map(String);
}
