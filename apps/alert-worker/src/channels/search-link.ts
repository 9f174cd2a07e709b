import { readWindowSpec } from '@logpond/alerting/window';
import type { AlertRuleDocument } from '@logpond/db/rule-change';
import { matchesLevel } from '@logpond/schema/alert-condition';
import { LEVELS } from '@logpond/schema/log-entry';
import type { NoticeItem } from './notice.ts';

/** Entries dated so far ahead of their reception are counted. */
const FUTURE_MAX_MS = 60_000;
/** Of `q` in a search. */
const SEARCH_TEXT_LENGTH_MAX = 512;

/** Times (ms since 1970) that hold the entries which a rule counted for these notifications. */
export function findRange(
  rule: Pick<AlertRuleDocument, 'condition'>,
  items: readonly Pick<NoticeItem, 'startedAtMs' | 'atMs'>[],
): { fromMs: number; toMs: number } {
  const { bucketS, span } = readWindowSpec(rule.condition);
  const startMs = Math.min(...items.map(({ startedAtMs, atMs }) => Math.min(startedAtMs, atMs)));
  const bucket = Math.floor(startMs / 1_000 / bucketS);
  return {
    fromMs: (bucket - span + 1) * bucketS * 1_000,
    toMs: Math.max(...items.map(({ atMs }) => atMs)) + FUTURE_MAX_MS,
  };
}

/** The search for the entries of a rule, as far as its parameters can say what the rule matches. */
export function makeSearchLink(
  publicUrl: string,
  rule: Pick<AlertRuleDocument, 'condition' | 'projectId' | 'service'>,
  { fromMs, toMs }: { fromMs: number; toMs: number },
): string {
  const params = new URLSearchParams({
    projectId: rule.projectId,
    from: new Date(fromMs).toISOString(),
    to: new Date(toMs).toISOString(),
  });
  if (typeof rule.service === 'string') params.append('service', rule.service);
  for (const [name, value] of describeCondition(rule)) params.append(name, value);
  return `${publicUrl.replace(/\/+$/, '')}/api/v1/logs?${params.toString()}`;
}

/** What these find is among what a search for the text in the message finds. */
const SUBSTRINGS: readonly string[] = ['equals', 'contains', 'starts_with'];

type Parameter = [name: string, value: string];

function describeCondition({
  condition,
  service,
}: Pick<AlertRuleDocument, 'condition' | 'service'>): Parameter[] {
  const { field, operator } = condition;
  const values = listValues(condition.value);
  const isOneOf = operator === 'equals' || operator === 'in';
  const isNoneOf = operator === 'not_equals' || operator === 'not_in';
  switch (field) {
    case 'level': {
      const matched = LEVELS.filter((_, index) => matchesLevel(condition, index + 1));
      return matched.length === LEVELS.length ? [] : matched.map((level): Parameter => ['level', level]);
    }
    case 'service':
      if (isNoneOf) return values.map((value): Parameter => ['not.service', value]);
      // Services are alternatives to each other, so a second one would widen the search.
      return isOneOf && typeof service !== 'string'
        ? values.map((value): Parameter => ['service', value])
        : [];
    case 'message':
      return describeText(operator, values[0] ?? '');
    case 'trace_id':
      return operator === 'equals' ? [['traceId', values[0] ?? '']] : [];
    default:
      return isOneOf ? values.map((value): Parameter => [field, value]) : [];
  }
}

function describeText(operator: AlertRuleDocument['condition']['operator'], value: string): Parameter[] {
  const text = Array.from(value).slice(0, SEARCH_TEXT_LENGTH_MAX).join('');
  if (operator === 'not_contains') return [['not.q', text]];
  const isRegex = operator === 'regex';
  // A part of a regular expression is another one, or none.
  if (isRegex ? text !== value : !SUBSTRINGS.includes(operator)) return [];
  return [
    ['q', text],
    ['searchMode', isRegex ? 'regex' : 'substring'],
  ];
}

function listValues(value: AlertRuleDocument['condition']['value']): string[] {
  if (value === undefined) return [];
  return (Array.isArray(value) ? value : [value]).map(String);
}
