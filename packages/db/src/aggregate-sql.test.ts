import { formatTimestampNs, parseTimestampNs } from '@logpond/schema/timestamp';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { buildTimeline, startOfBucket } from './aggregate-sql.ts';

const HOUR_MS = 3_600_000;

function bucketOf(time: string, intervalMs: number, weekly: boolean): string {
  return formatTimestampNs(startOfBucket(parseTimestampNs(time) ?? 0n, { intervalMs, weekly }));
}

describe('startOfBucket', () => {
  it.each([
    ['2026-11-21T13:59:59.999999999Z', HOUR_MS, false, '2026-11-21T13:00:00.000Z'],
    ['2026-11-21T14:00:00Z', HOUR_MS, false, '2026-11-21T14:00:00.000Z'],
    ['2026-11-21T14:00:00Z', 24 * HOUR_MS, false, '2026-11-21T00:00:00.000Z'],
    ['2026-11-22T23:59:59Z', 168 * HOUR_MS, true, '2026-11-16T00:00:00.000Z'],
    ['2026-11-23T00:00:00Z', 168 * HOUR_MS, true, '2026-11-23T00:00:00.000Z'],
    ['1970-01-01T00:00:00Z', 168 * HOUR_MS, true, '1969-12-29T00:00:00.000Z'],
  ])('%s by %d ms (weeks: %s) is %s', (time, intervalMs, weekly, start) => {
    expect(bucketOf(time, intervalMs, weekly)).toBe(start);
  });

  it('holds its time, and a week starts on a Monday', () => {
    const times = fc.bigInt({ min: 0n, max: 2n ** 62n });
    fc.assert(
      fc.property(times, fc.integer({ min: 1, max: 60 }), (timeNs, weeks) => {
        const intervalMs = weeks * 168 * HOUR_MS;
        const start = startOfBucket(timeNs, { intervalMs, weekly: true });
        expect(start <= timeNs && timeNs < start + BigInt(intervalMs) * 1_000_000n).toBe(true);
        expect(new Date(Number(start / 1_000_000n)).getUTCDay()).toBe(1);
      }),
    );
  });
});

describe('buildTimeline', () => {
  it('binds only numbers that their types hold, whatever range and interval are asked for', () => {
    const bound = { Int64: 2n ** 63n, UInt32: 2n ** 32n } as const;
    const time = fc.bigInt({ min: 0n, max: 2n ** 63n - 1n });
    fc.assert(
      fc.property(time, time, fc.integer({ min: 1, max: 2_501_999_792 }), (a, b, hours) => {
        const [fromNs, toNs] = a < b ? [a, b] : [b, a];
        const filter = {
          services: [],
          levels: [],
          notServices: [],
          notLevels: [],
          notTexts: [],
          metadata: [],
        };
        const query = { filter, fromNs, toNs, intervalMs: hours * HOUR_MS, weekly: false };
        const scope = { projectId: '0199a1b2-0000-7000-8000-000000000001', oldestNs: 0n };
        const { sql, params } = buildTimeline(scope, query);
        for (const [, name = '', type] of sql.matchAll(/\{(p\d+):(Int64|UInt32)\}/g)) {
          const value = BigInt(params[name] as string | number);
          expect(value < bound[type as 'Int64' | 'UInt32']).toBe(true);
        }
      }),
    );
  });
});
