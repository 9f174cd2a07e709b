import { formatTimestampNs, parseTimestampNs } from '@logpond/schema/timestamp';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { startOfBucket } from './aggregate-sql.ts';

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
