import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readWindowSpec, replayWindow, SlidingWindow } from './window.ts';

describe('readWindowSpec', () => {
  it.each([
    ['1s', 1, 2],
    ['90s', 1, 91],
    ['5m', 1, 301],
    ['301s', 2, 152],
    ['599s', 2, 301],
    ['1h', 12, 301],
    ['1d', 288, 301],
    ['7d', 2160, 281],
  ])('cuts a window of %s into buckets of %i s, of which %i touch it', (timeWindow, bucketS, span) => {
    expect(readWindowSpec({ threshold: 3, timeWindow })).toEqual({ threshold: 3, bucketS, span });
  });

  it('makes buckets that divide a minute, an hour or a day and are no shorter than a 300th of the window', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 604_800 }), (windowS) => {
        const { bucketS, span } = readWindowSpec({ threshold: 1, timeWindow: `${windowS}s` });
        expect([60, 3600, 86_400].some((whole) => whole % bucketS === 0)).toBe(true);
        expect(bucketS).toBeGreaterThanOrEqual(Math.max(1, windowS / 300));
        expect((span - 1) * bucketS).toBeGreaterThanOrEqual(windowS);
        expect(span).toBeLessThanOrEqual(301);
      }),
    );
  });
});

describe('SlidingWindow', () => {
  it('counts all but entries that are older than the window or too far ahead when they arrive', () => {
    const spec = { threshold: 100, bucketS: 10, span: 3 };
    const countedOf = (second: number): number[] => {
      const window = new SlidingWindow(spec);
      window.count({ second, receivedSecond: 1005, count: 1 });
      return [window.counted, window.sum];
    };
    expect([979, 980, 1005, 1065, 1066].map(countedOf)).toEqual([
      [0, 0],
      [1, 1],
      [1, 1],
      [1, 1],
      [0, 0],
    ]);
  });

  it('tells the count when it fires, and the peak when it resolves', () => {
    const window = new SlidingWindow({ threshold: 3, bucketS: 1, span: 3 });
    expect(window.count({ second: 100, receivedSecond: 100, count: 2 })).toEqual([]);
    expect(window.count({ second: 100, receivedSecond: 101, count: 3 })).toEqual([
      { kind: 'fired', startedAtS: 101, count: 5 },
    ]);
    expect(window.count({ second: 101, receivedSecond: 101, count: 1 })).toEqual([]);
    expect(window.tick(103)).toEqual([]);
    expect(window.tick(104)).toEqual([
      { kind: 'resolved', startedAtS: 101, resolvedAtS: 104, peak: 6, count: 1 },
    ]);
    expect([window.isFiring, window.peak, window.counted]).toEqual([false, 0, 6]);
  });

  it('jumps over a year in the work of one window', () => {
    const window = new SlidingWindow({ threshold: 1, bucketS: 1, span: 301 });
    for (let year = 0; year < 2000; year += 1) {
      const second = year * 31_536_000;
      const kinds = window.count({ second, receivedSecond: second, count: 1 }).map(({ kind }) => kind);
      expect(kinds).toEqual(year === 0 ? ['fired'] : ['resolved', 'fired']);
    }
    expect(window.takeChanges()?.set['counted']).toBe('2000');
  });

  it('does not go back in time for what was received earlier and comes later', () => {
    const window = new SlidingWindow({ threshold: 3, bucketS: 1, span: 6 });
    window.count({ second: 105, receivedSecond: 105, count: 1 });
    window.count({ second: 99, receivedSecond: 99, count: 1 });
    expect([window.sum, window.counted]).toEqual([1, 2]);
    expect(window.count({ second: 100, receivedSecond: 100, count: 2 })).toEqual([
      { kind: 'fired', startedAtS: 105, count: 3 },
    ]);
  });

  it('gives what changed since it was asked last, and nothing else', () => {
    const window = new SlidingWindow({ threshold: 9, bucketS: 1, span: 3 });
    window.count({ second: 100, receivedSecond: 100, count: 2 });
    expect(window.takeChanges()?.set).toEqual({ b100: '2', clock: '100', counted: '2' });
    window.count({ second: 101, receivedSecond: 101, count: 1 });
    expect(window.takeChanges()?.set).toEqual({ b101: '1', clock: '101', counted: '3' });
    window.count({ second: 103, receivedSecond: 103, count: 7 });
    expect(window.takeChanges()).toEqual({
      set: { b103: '7', clock: '103', counted: '10' },
      unset: ['b100', 'startedAt', 'peak'],
    });
    expect(window.takeChanges()).toBeUndefined();
  });

  it('leaves a window that does not fire as it is, however often it ticks', () => {
    const window = new SlidingWindow({ threshold: 3, bucketS: 1, span: 3 });
    window.count({ second: 100, receivedSecond: 100, count: 2 });
    window.takeChanges();
    expect(window.tick(200)).toEqual([]);
    expect(window.takeChanges()).toBeUndefined();
  });

  it('refuses stored fields that are no numbers', () => {
    const spec = { threshold: 1, bucketS: 1, span: 2 };
    expect(() => new SlidingWindow(spec, { b12: 'x' })).toThrow(
      'field b12 of a window: expected a whole number, got x',
    );
    expect(() => new SlidingWindow(spec, { clock: '' })).toThrow('field clock');
  });
});

describe('replayWindow', () => {
  it('tells the greatest sum there was, also below the threshold', () => {
    const spec = { threshold: 100, bucketS: 1, span: 2 };
    const counts = [1, 5, 2].map((count, index) => ({ second: index, receivedSecond: index, count }));
    expect(replayWindow(spec, counts, { untilS: 10 })).toEqual({ firings: [], maxCount: 7 });
  });

  it('what was received before the range fills its first window, and firings that were over by then are left out', () => {
    const spec = { threshold: 5, bucketS: 1, span: 4 };
    const counts = [9, 0, 0, 0, 0, 0, 3, 2, 0, 1].map((count, index) => {
      return { second: index, receivedSecond: index, count };
    });
    expect(replayWindow(spec, counts, { fromS: 7, untilS: 20 })).toEqual({
      firings: [{ startedAtS: 7, resolvedAtS: 11, peak: 6 }],
      maxCount: 6,
    });
    expect(replayWindow(spec, counts, { untilS: 20 })).toMatchObject({ maxCount: 9 });
    const late = counts.filter(({ second }) => second >= 7);
    expect(replayWindow(spec, late, { fromS: 7, untilS: 20 })).toEqual({ firings: [], maxCount: 3 });
  });
});
