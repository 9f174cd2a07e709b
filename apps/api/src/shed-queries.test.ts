import { parseAggregateQuery, parseLogQuery } from '@logpond/schema/log-query';
import { describe, expect, it } from 'vitest';
import { isCostlyAggregation, isCostlySearch, shedCostly } from './shed-queries.ts';

const NOW_MS = Date.parse('2026-11-21T12:00:00Z');

function isSearchCostly(query: string): boolean {
  return isCostlySearch(parseLogQuery(new URLSearchParams(query)));
}

function isAggregationCostly(query: string): boolean {
  return isCostlyAggregation(parseAggregateQuery(new URLSearchParams(query), NOW_MS));
}

describe('while the streams fill up', () => {
  it('searches without an index are costly, those with one are not', () => {
    expect(isSearchCostly('q=x&searchMode=substring')).toBe(true);
    expect(isSearchCostly('q=x&searchMode=regex')).toBe(true);
    for (const cheap of ['', 'q=x', 'searchMode=regex', 'traceId=t', 'metadata.a=1&level=error']) {
      expect([cheap, isSearchCostly(cheap)]).toEqual([cheap, false]);
    }
  });

  it('aggregations over more than a day are costly unless the roll-up answers them', () => {
    const week = 'from=2026-11-14T12:00:00Z&to=2026-11-21T12:00:00Z';
    for (const costly of ['q=x', 'traceId=t', 'metadata.a=1', 'not.q=x', 'interval=10m', 'interval=90m'])
      expect([costly, isAggregationCostly(`${week}&${costly}`)]).toEqual([costly, true]);
    for (const cheap of ['', 'level=error', 'service=a&not.service=b', 'interval=1d', 'interval=2w'])
      expect([cheap, isAggregationCostly(`${week}&${cheap}`)]).toEqual([cheap, false]);
    expect(isAggregationCostly('q=x&interval=1m')).toBe(false);
  });

  it('costly queries get 503 UNAVAILABLE with Retry-After, the others and all without pressure pass', () => {
    expect(() => shedCostly({ isPressed: true }, true)).toThrow(
      expect.objectContaining({ code: 'UNAVAILABLE', retryAfterS: expect.any(Number) as number }),
    );
    expect(() => shedCostly({ isPressed: true }, false)).not.toThrow();
    expect(() => shedCostly({ isPressed: false }, true)).not.toThrow();
  });
});
