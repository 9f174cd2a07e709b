import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeDigest, DigestCounter, encodeDigest } from './digest.ts';
import { BlockError } from './layout.ts';

const item = fc.record({
  level: fc.integer({ min: 1, max: 5 }),
  second: fc.integer({ min: 0, max: 40 }).map((second) => 1_769_860_800 + second - 20),
  service: fc.constantFrom('api', 'é', 'worker'),
});

describe('digest', () => {
  it('counts each level, second and service of a run, and survives its encoding', () => {
    fc.assert(
      fc.property(fc.array(item, { minLength: 1, maxLength: 200 }), (entries) => {
        const counter = new DigestCounter();
        for (const { level, second, service } of entries) counter.add(level, second, service);
        const items = decodeDigest(encodeDigest(counter.take(3)));
        const keyOf = (one: { level: number; second: number; service: string }): string =>
          `${one.level} ${one.second} ${one.service}`;
        expect(items.every(({ runIndex }) => runIndex === 3)).toBe(true);
        const counted = items.flatMap((one) => Array.from({ length: one.count }, () => keyOf(one)));
        expect(counted.toSorted()).toEqual(entries.map(keyOf).toSorted());
        expect(new Set(items.map(keyOf)).size).toBe(items.length);
      }),
    );
  });

  it('a run of more than 256 items has none, and the next run is counted anew', () => {
    const counter = new DigestCounter();
    for (let second = 0; second < 257; second += 1) counter.add(1, second, 'api');
    expect(counter.take(0)).toEqual([]);
    for (let second = 0; second < 256; second += 1) counter.add(1, second, 'api');
    expect(counter.take(1)).toHaveLength(256);
  });

  it('a second beyond 32 bits leaves the run without items', () => {
    const counter = new DigestCounter();
    counter.add(1, 2 ** 32, 'api');
    expect(counter.take(0)).toEqual([]);
  });

  it('a digest that is cut short is refused', () => {
    const digest = encodeDigest([{ runIndex: 0, level: 1, second: 1, service: 'api', count: 1 }]);
    for (let length = 1; length < digest.length; length += 1) {
      expect(() => decodeDigest(digest.subarray(0, length))).toThrow(BlockError);
    }
  });
});
