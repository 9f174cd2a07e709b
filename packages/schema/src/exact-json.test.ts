import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isRawNumber, parseExactJson } from './exact-json.ts';

describe('parseExactJson', () => {
  it.each([
    '9007199254740993',
    '-12345678901234567890',
    '123456789012345678901234567890',
    '0.1234567890123456789',
    '1e400',
    '-1E-400',
    '1e999999999',
    '18446744073709551615',
  ])('%s comes back as it was sent', (source) => {
    expect(JSON.stringify(parseExactJson(`{"a":[${source}]}`))).toBe(`{"a":[${source}]}`);
  });

  it.each(['0', '-0', '1.50', '1e2', '9007199254740992', '1.7976931348623157e308', '5e-324'])(
    '%s stays a number, because a double holds it',
    (source) => {
      expect(parseExactJson(source)).toBe(JSON.parse(source));
    },
  );

  it('is JSON.parse for every value whose numbers are doubles', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        expect(JSON.stringify(parseExactJson(text))).toBe(JSON.stringify(JSON.parse(text)));
      }),
    );
  });

  it('every integer survives', () => {
    fc.assert(
      fc.property(fc.bigInt(), (value) => {
        expect(JSON.stringify(parseExactJson(String(value)))).toBe(String(value));
      }),
    );
  });

  it.each(['1.', '0.', '0.000001'])(
    'a number of a million digits costs no more than reading it (%s)',
    (start) => {
      const source = `${start}${'0'.repeat(1_000_000)}1`;
      const before = process.threadCpuUsage();
      expect(JSON.stringify(parseExactJson(source))).toBe(source);
      const { user, system } = process.threadCpuUsage(before);
      // A few milliseconds; with time quadratic in the digits it was a quarter of an hour.
      expect((user + system) / 1_000).toBeLessThan(2_000);
    },
  );

  it('tells its raw numbers from objects', () => {
    expect(isRawNumber(parseExactJson('9007199254740993'))).toBe(true);
    expect(isRawNumber(parseExactJson('{"rawJSON":"9007199254740993"}'))).toBe(false);
  });
});
