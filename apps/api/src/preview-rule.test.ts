import { readWindowSpec, replayWindow } from '@logpond/alerting/window';
import type { WindowSpec } from '@logpond/alerting/window';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findQuieterThreshold, leadSeconds, previewRule } from './preview-rule.ts';
import type { BucketCount } from './preview-rule.ts';

const DAY_S = 86_400;
const START_S = Date.parse('2026-11-20T00:00:00Z') / 1_000;

function entriesAt(seconds: readonly number[], count = 1): BucketCount[] {
  return seconds.map((second) => ({ second: START_S + second, receivedSecond: START_S + second, count }));
}

function countFirings(spec: WindowSpec, counts: readonly BucketCount[], threshold: number): number {
  return replayWindow({ ...spec, threshold }, counts, { untilS: START_S + 2 * DAY_S }).firings.length;
}

describe('previewRule', () => {
  it('gives firings, the greatest count and a series with every bucket of the range', () => {
    const spec = readWindowSpec({ threshold: 3, timeWindow: '1m' });
    const counts = [...entriesAt([10, 11, 12, 500]), ...entriesAt([3_600], 5)];
    const preview = previewRule(spec, counts, { fromS: START_S, toS: START_S + DAY_S });
    // One second is the 300th of a minute rounded up; a window of a minute touches 61 of them.
    expect(preview.firings).toEqual([
      { startedAt: '2026-11-20T00:00:12.000Z', resolvedAt: '2026-11-20T00:01:12.000Z', peak: 3 },
      { startedAt: '2026-11-20T01:00:00.000Z', resolvedAt: '2026-11-20T01:01:02.000Z', peak: 5 },
    ]);
    expect(preview.maxCount).toBe(5);
    expect(preview.series).toHaveLength(480);
    expect(preview.series.filter(({ count }) => count > 0)).toEqual([
      { bucket: '2026-11-20T00:00:00.000Z', count: 3 },
      { bucket: '2026-11-20T00:06:00.000Z', count: 1 },
      { bucket: '2026-11-20T01:00:00.000Z', count: 5 },
    ]);
    expect(preview.quieterThreshold).toBe(4);
  });

  it('a rule that is quiet enough gets no other threshold', () => {
    const spec = readWindowSpec({ threshold: 3, timeWindow: '1m' });
    const twice = entriesAt([10, 11, 12, 600, 601, 602]);
    const oneDay = { fromS: START_S, toS: START_S + DAY_S };
    expect(previewRule(spec, twice, oneDay).quieterThreshold).toBe(4);
    expect(previewRule(spec, twice, { ...oneDay, toS: START_S + 2 * DAY_S }).quieterThreshold).toBeNull();
    expect(previewRule(spec, [], oneDay)).toMatchObject({ firings: [], maxCount: 0, quieterThreshold: null });
  });

  it('a window longer than the range counts what came before it', () => {
    const spec = readWindowSpec({ threshold: 100, timeWindow: '7d' });
    const hourly = entriesAt(Array.from({ length: 10 * 24 }, (_, hour) => (hour - 9 * 24) * 3_600));
    const counts = hourly.filter(({ receivedSecond }) => receivedSecond >= START_S - leadSeconds(spec));
    const preview = previewRule(spec, counts, { fromS: START_S, toS: START_S + DAY_S });
    expect(preview.firings).toMatchObject([{ resolvedAt: null }]);
    expect(preview.maxCount).toBeGreaterThanOrEqual(168);
    expect(preview.series.reduce((sum, { count }) => sum + count, 0)).toBe(24);
    // It began before the range.
    expect(Date.parse(preview.firings[0]?.startedAt ?? '')).toBeLessThan(START_S * 1_000);
  });

  it.each(['1s', '7s', '90s', '5m', '1h', '13h', '7d'])(
    'a series has at most 500 points, of which none cuts a bucket of a window of %s',
    (timeWindow) => {
      const spec = readWindowSpec({ threshold: 1, timeWindow });
      for (const seconds of [1, 59, 500, 3_601, DAY_S, 7 * DAY_S + 11, 30 * DAY_S]) {
        const fromS = Math.floor((START_S + 17) / spec.bucketS) * spec.bucketS;
        const counts = entriesAt([fromS - START_S, fromS - START_S + seconds - 1]);
        const { series } = previewRule(spec, counts, { fromS, toS: fromS + seconds });
        expect(series.length).toBeLessThanOrEqual(500);
        expect(series.reduce((sum, { count }) => sum + count, 0)).toBe(2);
        const widths = series
          .slice(1)
          .map(({ bucket }, n) => Date.parse(bucket) - Date.parse(series[n]?.bucket ?? ''));
        expect(new Set(widths).size).toBeLessThanOrEqual(1);
        expect(widths.every((widthMs) => widthMs % (spec.bucketS * 1_000) === 0)).toBe(true);
      }
    },
  );

  it('the quieter threshold is the least above the own one that the window itself is quiet at', () => {
    const counted = fc.record({
      receivedSecond: fc.integer({ min: 0, max: 400 }),
      ageS: fc.integer({ min: 0, max: 40 }),
      count: fc.integer({ min: 1, max: 4 }),
    });
    fc.assert(
      fc.property(
        fc.array(counted, { minLength: 1, maxLength: 60 }),
        fc.constantFrom('1s', '3s', '20s', '1m'),
        fc.integer({ min: 1, max: 6 }),
        fc.integer({ min: 1, max: 3 }),
        (items, timeWindow, threshold, firingsMax) => {
          const spec = readWindowSpec({ threshold, timeWindow });
          const counts = items
            .toSorted((a, b) => a.receivedSecond - b.receivedSecond)
            .map(({ receivedSecond, ageS, count }) => ({
              second: START_S + receivedSecond - ageS,
              receivedSecond: START_S + receivedSecond,
              count,
            }));
          let least = threshold + 1;
          while (countFirings(spec, counts, least) > firingsMax) least += 1;
          expect(findQuieterThreshold(spec, counts, { firingsMax })).toBe(least);
        },
      ),
      { numRuns: 300 },
    );
  });
});
