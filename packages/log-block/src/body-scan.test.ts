import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { scanBody } from './body-scan.ts';

function isTooDeep(text: string, isLines = false): boolean {
  return scanBody(Buffer.from(text), isLines).isTooDeep;
}

function isInexact(text: string): boolean {
  return scanBody(Buffer.from(text), false).mayHoldInexactNumber;
}

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}

describe('scanBody', () => {
  it('lets 40 levels pass and not 41', () => {
    expect(isTooDeep('['.repeat(40) + ']'.repeat(40))).toBe(false);
    expect(isTooDeep('['.repeat(41) + ']'.repeat(41))).toBe(true);
    expect(isTooDeep('[[],'.repeat(41))).toBe(true);
    expect(isTooDeep('{"a":'.repeat(5_000_000))).toBe(true);
  });

  it('does not count brackets in strings, escaped quotes included', () => {
    expect(isTooDeep(JSON.stringify([`"\\"${'['.repeat(100)}\\`]))).toBe(false);
    expect(isTooDeep(`["\\\\",${'['.repeat(41)}`)).toBe(true);
  });

  it('begins anew on each line of NDJSON, after a broken one too', () => {
    expect(isTooDeep('{"a":[[[\n'.repeat(50), true)).toBe(false);
    expect(isTooDeep(`{"a":"\n${'['.repeat(41)}`, true)).toBe(true);
  });

  it('finds the depth of any JSON', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 8 }), fc.integer({ min: 30, max: 42 }), (value, shell) => {
        const text = '['.repeat(shell) + JSON.stringify(value) + ']'.repeat(shell);
        expect(isTooDeep(text)).toBe(shell + depthOf(value) > 40);
      }),
    );
  });

  it.each(['1234567890123456', '-0.1234567890123456', '1e5', '1E5', '12.5e-3', '12345678.123456789'])(
    'sees that a double may not hold %s',
    (number) => {
      expect(isInexact(`{"a":[1,${number}]}`)).toBe(true);
    },
  );

  it.each(['123456789012345', '-1.5', '"1234567890123456789"', '"1e5"', 'true', 'false'])(
    'sees that %s survives',
    (value) => {
      expect(isInexact(`{"1234567890123456789":${value}}`)).toBe(false);
    },
  );

  it('ends at the end of cut text', () => {
    for (const text of ['"', '"\\', '"a\\"', '1', '[1', '12e']) expect(isTooDeep(text)).toBe(false);
  });
});
