import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { apportionBlock } from './apportion.ts';

const run = fc.record({
  projectId: fc.constantFrom('a', 'b', 'c', 'd'),
  rows: fc.integer({ min: 1, max: 1_000 }),
  bodyBytes: fc.integer({ min: 0, max: 10_000_000 }),
  receivedAtNs: fc.constant(0n),
  minTimeNs: fc.constant(0n),
  maxTimeNs: fc.constant(0n),
});

describe('the shares of a block', () => {
  it('add up to its bytes and rows, one a project, the same every time', () => {
    fc.assert(
      fc.property(fc.array(run, { minLength: 1, maxLength: 40 }), fc.nat(8_000_000), (runs, storedBytes) => {
        const shares = apportionBlock(runs, storedBytes);
        expect(shares.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(storedBytes);
        expect(shares.every(({ bytes }) => bytes >= 0)).toBe(true);
        expect(shares.reduce((sum, { rows }) => sum + rows, 0)).toBe(
          runs.reduce((sum, { rows }) => sum + rows, 0),
        );
        expect(new Set(shares.map(({ projectId }) => projectId)).size).toBe(shares.length);
        expect(apportionBlock(runs, storedBytes)).toEqual(shares);
      }),
    );
  });

  it('follow the bodies', () => {
    const whole = { rows: 1, receivedAtNs: 0n, minTimeNs: 0n, maxTimeNs: 0n };
    const runs = [
      { ...whole, projectId: 'a', bodyBytes: 300 },
      { ...whole, projectId: 'b', bodyBytes: 100 },
    ];
    expect(apportionBlock(runs, 100).map(({ bytes }) => bytes)).toEqual([75, 25]);
  });
});
