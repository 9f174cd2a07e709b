import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { jitterRetryAfter } from './retry-after.ts';

const random = fc.double({ min: 0, max: 0.999_999, noNaN: true });

describe('jitterRetryAfter', () => {
  it('is a whole number of at least 1, within 20 % of what was asked for', () => {
    fc.assert(
      fc.property(
        fc.double({ min: 0.1, max: 300, noNaN: true }),
        random,
        random,
        (seconds, first, second) => {
          const values = [first, second];
          const after = jitterRetryAfter(seconds, () => values.shift() ?? 0);
          expect(Number.isInteger(after)).toBe(true);
          expect(after).toBeGreaterThanOrEqual(Math.max(1, Math.floor(seconds * 0.8)));
          expect(after).toBeLessThanOrEqual(Math.max(1, Math.ceil(seconds * 1.2)));
        },
      ),
    );
  });

  it('spreads clients that were refused together', () => {
    const sent = new Set(Array.from({ length: 200 }, () => jitterRetryAfter(100)));
    expect(sent.size).toBeGreaterThan(10);
  });
});
