import { parseLogQuery } from '@logpond/schema/log-query';
import type { AlertCondition } from '@logpond/schema/alert-condition';
import { describe, expect, it } from 'vitest';
import { makeItem, makeRule } from '../notice.test-support.ts';
import { findRange, makeSearchLink } from './search-link.ts';
import type { SearchLink } from './search-link.ts';

const RANGE = { fromMs: Date.UTC(2026, 10, 21, 19), toMs: Date.UTC(2026, 10, 21, 20) };

function makeLink(condition: Partial<AlertCondition>, service?: string): SearchLink {
  const rule = makeRule({ service: service ?? null });
  const changed = { ...rule, condition: { ...rule.condition, ...condition } };
  return makeSearchLink('https://logs.example.com/base/', changed, RANGE);
}

function linkOf(condition: Partial<AlertCondition>, service?: string): URL {
  return new URL(makeLink(condition, service).url);
}

describe('the link to the search that a rule stands for', () => {
  it('has the project, absolute times, and the path of the API', () => {
    const url = linkOf({});
    expect(url.href).toMatch(/^https:\/\/logs\.example\.com\/base\/api\/v1\/logs\?/);
    expect(Object.fromEntries(url.searchParams)).toMatchObject({
      projectId: makeRule().projectId,
      from: '2026-11-21T19:00:00.000Z',
      to: '2026-11-21T20:00:00.000Z',
    });
  });

  it.each<[Partial<AlertCondition>, string | undefined, object]>([
    [{}, undefined, { levels: ['error'] }],
    [{}, 'web', { levels: ['error'], services: ['web'] }],
    [{ operator: 'in', value: ['error', 'critical'] }, undefined, { levels: ['error', 'critical'] }],
    [{ operator: 'gte', value: 'error' }, undefined, { levels: ['error', 'critical'] }],
    [
      { operator: 'not_equals', value: 'debug' },
      undefined,
      { levels: ['info', 'warn', 'error', 'critical'] },
    ],
    [{ operator: 'exists', value: undefined }, undefined, { levels: [] }],
    [{ field: 'service', value: 'web' }, undefined, { services: ['web'] }],
    [{ field: 'service', value: 'web' }, 'api', { services: ['api'] }],
    [{ field: 'service', operator: 'not_in', value: ['a', 'b'] }, undefined, { notServices: ['a', 'b'] }],
    [
      { field: 'message', operator: 'contains', value: 'a&b=c #' },
      undefined,
      { text: { mode: 'substring', query: 'a&b=c #' } },
    ],
    [
      { field: 'message', operator: 'regex', value: '^a+$' },
      undefined,
      { text: { mode: 'regex', query: '^a+$' } },
    ],
    [{ field: 'message', operator: 'not_contains', value: 'ok' }, undefined, { notTexts: ['ok'] }],
    [{ field: 'trace_id', value: 'abc' }, undefined, { traceId: 'abc' }],
    [{ field: 'metadata.user.id', value: 7 }, undefined, { metadata: [{ path: 'user.id', values: ['7'] }] }],
    [{ field: 'metadata.ms', operator: 'gt', value: 7 }, undefined, { metadata: [] }],
  ])('%o in service %s', (condition, service, filter) => {
    expect(parseLogQuery(linkOf(condition, service).searchParams).filter).toMatchObject(filter);
  });

  it('is one that the API takes although the text is long', () => {
    const value = 'x'.repeat(1_000);
    for (const operator of ['contains', 'regex', 'not_contains'] as const) {
      expect(() => parseLogQuery(linkOf({ field: 'message', operator, value }).searchParams)).not.toThrow();
    }
    expect(() => parseLogQuery(linkOf({ field: 'trace_id', value }).searchParams)).not.toThrow();
  });

  it.each<[Partial<AlertCondition>, string | undefined]>([
    [{}, 'web'],
    [{ operator: 'gte', value: 'error' }, undefined],
    [{ operator: 'regex', value: '^(err|crit)' }, undefined],
    [{ operator: 'exists', value: undefined }, undefined],
    [{ field: 'service', value: 'web' }, undefined],
    [{ field: 'service', operator: 'not_in', value: ['a', 'b'] }, 'c'],
    [{ field: 'message', operator: 'contains', value: 'a b' }, undefined],
    [{ field: 'message', operator: 'regex', value: '^a+$' }, 'web'],
    [{ field: 'message', operator: 'exists', value: undefined }, undefined],
    [{ field: 'trace_id', value: 'abc' }, undefined],
    [{ field: 'metadata.a', operator: 'in', value: [7, 'x'] }, undefined],
  ])('asks for exactly what %o in service %s matches', (condition, service) => {
    expect(makeLink(condition, service).isExact).toBe(true);
  });

  it.each<[Partial<AlertCondition>, string | undefined]>([
    [{ operator: 'lt', value: 'debug' }, undefined],
    [{ field: 'service', operator: 'contains', value: 'web' }, undefined],
    [{ field: 'service', value: 'web' }, 'api'],
    [{ field: 'message', value: 'whole' }, undefined],
    [{ field: 'message', value: '' }, undefined],
    [{ field: 'message', operator: 'starts_with', value: 'a' }, undefined],
    [{ field: 'message', operator: 'not_contains', value: 'ok' }, undefined],
    [{ field: 'message', operator: 'contains', value: 'x'.repeat(600) }, undefined],
    [{ field: 'message', operator: 'gt', value: 5 }, undefined],
    [{ field: 'trace_id', operator: 'contains', value: 'a' }, undefined],
    [{ field: 'trace_id', operator: 'in', value: ['a', 'b'] }, undefined],
    [{ field: 'metadata.a', operator: 'gt', value: 7 }, undefined],
    [{ field: 'metadata.a', operator: 'not_equals', value: 'x' }, undefined],
    [{ field: 'metadata.a', operator: 'exists', value: undefined }, undefined],
  ])('says that %o in service %s is more than it can ask for', (condition, service) => {
    expect(makeLink(condition, service).isExact).toBe(false);
  });

  it('leaves out no entry that a rule on the absence of several words matched', () => {
    const { filter } = parseLogQuery(
      linkOf({ field: 'message', operator: 'not_contains', value: 'a b' }).searchParams,
    );
    expect(filter.notTexts).toEqual([]);
  });
});

it('reaches from the first bucket of the window to a minute after the transition', () => {
  const atMs = Date.UTC(2026, 10, 21, 19, 45, 1);
  const range = findRange(makeRule(), [makeItem({ startedAtMs: atMs, atMs })]);
  expect(range).toEqual({ fromMs: atMs - 300_000, toMs: atMs + 60_000 });
  const later = makeItem({ startedAtMs: atMs, atMs: atMs + 3_600_000, kind: 'resolved' });
  expect(findRange(makeRule(), [later])).toEqual({ fromMs: atMs - 300_000, toMs: atMs + 3_660_000 });
});

it('does not reach behind the creation of the rule, whose entries from before do not count', () => {
  const atMs = Date.UTC(2026, 10, 21, 19, 45, 1);
  const createdAt = new Date(atMs - 4_000).toISOString();
  const item = makeItem({ startedAtMs: atMs, atMs });
  expect(findRange(makeRule({ createdAt }), [item])).toEqual({ fromMs: atMs - 4_000, toMs: atMs + 60_000 });
  const ahead = new Date(atMs + 3_600_000).toISOString();
  expect(findRange(makeRule({ createdAt: ahead }), [item])).toEqual({
    fromMs: atMs + 60_000,
    toMs: atMs + 60_000,
  });
});
