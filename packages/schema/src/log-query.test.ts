import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { ApiError } from './api-error.ts';
import {
  aggregateQueryParams,
  logQueryParams,
  parseAggregateQuery,
  parseLogQuery,
  parseStreamQuery,
  streamQueryParams,
} from './log-query.ts';
import { parseTimestampNs } from './timestamp.ts';

const NOW_MS = Date.UTC(2026, 0, 31, 12);

function ns(text: string): bigint {
  return parseTimestampNs(text) ?? -1n;
}

function refusalOf(run: () => unknown): ApiError {
  try {
    run();
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error('accepted');
}

describe('GET /logs parameters', () => {
  it('nothing means the newest 100 of everything', () => {
    expect(parseLogQuery(new URLSearchParams())).toEqual({
      filter: { services: [], levels: [], notServices: [], notLevels: [], notTexts: [], metadata: [] },
      limit: 100,
      offset: 0,
      order: 'desc',
    });
  });

  it('every filter is read, repeated ones together, + and %20 as spaces', () => {
    const params = new URLSearchParams(
      'service=a&service=b&level=ERROR&level=info&not.service=c&not.level=debug&q=two+words%20here&not.q=x&not.q=y' +
        '&searchMode=substring&traceId=t&metadata.user.id=1&metadata.user.id=2&metadata.a=&from=2026-01-01T00:00:00Z' +
        '&to=2026-01-02T00:00:00%2B02:00&limit=7&offset=9&order=asc&unknown=1&unknown=2',
    );
    expect(parseLogQuery(params)).toEqual({
      filter: {
        fromNs: ns('2026-01-01T00:00:00Z'),
        toNs: ns('2026-01-01T22:00:00Z'),
        services: ['a', 'b'],
        levels: ['error', 'info'],
        notServices: ['c'],
        notLevels: ['debug'],
        text: { mode: 'substring', query: 'two words here' },
        notTexts: ['x', 'y'],
        traceId: 't',
        metadata: [
          { path: 'user.id', values: ['1', '2'] },
          { path: 'a', values: [''] },
        ],
      },
      limit: 7,
      offset: 9,
      order: 'asc',
    });
  });

  it('an offset whose plus sign was not encoded is still an offset', () => {
    const { filter } = parseLogQuery(
      new URLSearchParams('from=2026-01-01T02:00:00+02:00&to=2026-01-01 02:00:00'),
    );
    expect(filter.fromNs).toBe(ns('2026-01-01T00:00:00Z'));
    expect(filter.toNs).toBe(ns('2026-01-01T02:00:00Z'));
  });

  it('a cursor takes the place of the offset', () => {
    expect(parseLogQuery(new URLSearchParams('cursor=abc&offset=0')).cursor).toBe('abc');
    expect(
      refusalOf(() => parseLogQuery(new URLSearchParams('cursor=abc&offset=1'))).details?.[0]?.path,
    ).toBe('offset');
  });

  it.each([
    ['limit=0', 'limit'],
    ['limit=1001', 'limit'],
    ['limit=1e2', 'limit'],
    ['limit=1&limit=2', 'limit'],
    ['offset=-1', 'offset'],
    ['offset=10001', 'offset'],
    ['level=fatal', 'level'],
    ['not.level=x', 'not.level'],
    ['from=yesterday', 'from'],
    ['to=2026-02-30T00:00:00Z', 'to'],
    ['from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z', 'from'],
    ['q=a&q=b', 'q'],
    [`q=${'x'.repeat(513)}`, 'q'],
    ['searchMode=like', 'searchMode'],
    ['order=up', 'order'],
    [`traceId=${'x'.repeat(129)}`, 'traceId'],
    ['traceId=a&traceId=b', 'traceId'],
    ['metadata.=1', 'metadata.'],
  ])('%s is refused with 400 naming %s', (query, path) => {
    const error = refusalOf(() => parseLogQuery(new URLSearchParams(query)));
    expect(error).toMatchObject({ code: 'VALIDATION_ERROR', statusCode: 400 });
    expect(error.details?.[0]?.path).toBe(path);
    expect(error.publicMessage).toMatch(/expected .*, got /s);
  });

  it('an offset beyond 10,000 is refused with a hint at cursor', () => {
    expect(refusalOf(() => parseLogQuery(new URLSearchParams('offset=10001'))).publicMessage).toContain(
      'cursor',
    );
  });
});

describe('GET /logs/aggregated parameters', () => {
  it('nothing means the last 24 h by the hour', () => {
    expect(parseAggregateQuery(new URLSearchParams(), NOW_MS)).toMatchObject({
      fromNs: ns('2026-01-30T12:00:00Z'),
      toNs: ns('2026-01-31T12:00:00Z'),
      intervalMs: 3_600_000,
      weekly: false,
    });
  });

  it('an interval in weeks is marked', () => {
    expect(parseAggregateQuery(new URLSearchParams('interval=2w'), NOW_MS)).toMatchObject({
      intervalMs: 1_209_600_000,
      weekly: true,
    });
  });

  it('10,080 buckets are the most', () => {
    const week = 'from=2026-01-01T00:00:00Z&to=2026-01-08T00:00:00Z';
    expect(parseAggregateQuery(new URLSearchParams(`${week}&interval=1m`), NOW_MS).intervalMs).toBe(60_000);
    const error = refusalOf(() => parseAggregateQuery(new URLSearchParams(`${week}&interval=59s`), NOW_MS));
    expect(error.publicMessage).toContain('10080');
  });

  it.each(['interval=1', 'interval=0h', 'from=2026-02-01T00:00:00Z'])('%s is refused', (query) => {
    const error = refusalOf(() => parseAggregateQuery(new URLSearchParams(query), NOW_MS));
    expect(error.code).toBe('VALIDATION_ERROR');
  });
});

describe('GET /logs/stream parameters', () => {
  it('has filters and a place to resume, no range', () => {
    const query = parseStreamQuery(new URLSearchParams('service=a&from=2026-01-01T00:00:00Z&lastEventId=7'));
    expect(query).toMatchObject({ filter: { services: ['a'] }, lastEventId: '7' });
    expect(query.filter).not.toHaveProperty('fromNs');
  });

  it('refuses regular expressions', () => {
    expect(refusalOf(() => parseStreamQuery(new URLSearchParams('q=(a+)%2B&searchMode=regex'))).code).toBe(
      'VALIDATION_ERROR',
    );
  });
});

it('the parameters can be written as JSON Schema', () => {
  for (const params of [logQueryParams, aggregateQueryParams, streamQueryParams]) {
    expect(z.toJSONSchema(params, { io: 'input' })).toMatchObject({ type: 'object' });
  }
});
