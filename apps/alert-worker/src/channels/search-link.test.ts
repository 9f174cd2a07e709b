import { parseLogQuery } from '@logpond/schema/log-query';
import type { AlertCondition } from '@logpond/schema/alert-condition';
import { describe, expect, it } from 'vitest';
import { makeItem, makeRule } from '../notice.test-support.ts';
import { findRange, makeSearchLink } from './search-link.ts';

const RANGE = { fromMs: Date.UTC(2026, 10, 21, 19), toMs: Date.UTC(2026, 10, 21, 20) };

function linkOf(condition: Partial<AlertCondition>, service?: string): URL {
  const rule = makeRule({ service: service ?? null });
  return new URL(
    makeSearchLink(
      'https://logs.example.com/base/',
      { ...rule, condition: { ...rule.condition, ...condition } },
      RANGE,
    ),
  );
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
  });
});

it('reaches from the first bucket of the window to a minute after the transition', () => {
  const atMs = Date.UTC(2026, 10, 21, 19, 45, 1);
  const range = findRange(makeRule(), [makeItem({ startedAtMs: atMs, atMs })]);
  expect(range).toEqual({ fromMs: atMs - 300_000, toMs: atMs + 60_000 });
  const later = makeItem({ startedAtMs: atMs, atMs: atMs + 3_600_000, kind: 'resolved' });
  expect(findRange(makeRule(), [later])).toEqual({ fromMs: atMs - 300_000, toMs: atMs + 3_660_000 });
});
