import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatTimestampNs, parseRangeBoundNs, parseTimestampNs, TIMESTAMP_MAX_NS } from './timestamp.ts';

describe('timestamps', () => {
  it('any time from 1970 to 2262 survives writing and reading to the nanosecond', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: TIMESTAMP_MAX_NS }), (ns) => {
        expect(parseTimestampNs(formatTimestampNs(ns))).toBe(ns);
      }),
    );
  });

  it('agrees with Date on every valid and invalid calendar date', () => {
    const part = (max: number): fc.Arbitrary<string> =>
      fc.integer({ min: 0, max }).map((value) => String(value).padStart(2, '0'));
    fc.assert(
      fc.property(
        fc.integer({ min: 1970, max: 2261 }),
        part(13),
        part(32),
        part(25),
        part(61),
        part(61),
        (year, ...parts) => {
          const [month, day, hour, minute, second] = parts;
          const text = `${year}-${month}-${day}T${hour}:${minute}:${second}Z`;
          const date = new Date(text);
          const isValid = !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text.slice(0, -1));
          expect(parseTimestampNs(text)).toBe(isValid ? BigInt(date.getTime()) * 1_000_000n : undefined);
        },
      ),
      { numRuns: 2000 },
    );
  });

  it.each([
    ['2026-01-31T12:00:00Z', '2026-01-31T12:00:00.000Z'],
    ['2026-01-31T12:00:00', '2026-01-31T12:00:00.000Z'],
    ['2026-01-31t12:00:00z', '2026-01-31T12:00:00.000Z'],
    ['2026-01-31 12:00:00,5', '2026-01-31T12:00:00.500Z'],
    ['2026-01-31T12:00:00.1234+05:45', '2026-01-31T06:15:00.123400Z'],
    ['2026-01-31T12:00:00.123456789-0130', '2026-01-31T13:30:00.123456789Z'],
    ['2026-01-31T12:00:00+02', '2026-01-31T10:00:00.000Z'],
    ['2024-02-29T23:59:59.999999999Z', '2024-02-29T23:59:59.999999999Z'],
    ['1970-01-01T00:00:00Z', '1970-01-01T00:00:00.000Z'],
    ['2262-04-11T23:47:16.854775807Z', '2262-04-11T23:47:16.854775807Z'],
  ])('reads %s as %s', (text, expected) => {
    expect(formatTimestampNs(parseTimestampNs(text) ?? -1n)).toBe(expected);
  });

  it.each([
    '',
    'now',
    '2026-01-31',
    '2026-02-29T00:00:00Z',
    '2026-13-01T00:00:00Z',
    '2026-12-31T23:59:60Z',
    '2026-12-31T24:00:00Z',
    '2026-01-31T12:00:00.Z',
    '2026-01-31T12:00:00.1234567890Z',
    '2026-01-31T12:00:00+24:00',
    '2026-01-31T12:00:00+1:00',
    '2026-01-31T12:00:00 +01:00',
    '2026-01-31T12:00:00ZZ',
    '1969-12-31T23:59:59Z',
    '2262-04-11T23:47:16.854775808Z',
    '9999-01-01T00:00:00Z',
    '+02026-01-31T12:00:00Z',
  ])('refuses %s', (text) => {
    expect(parseTimestampNs(text)).toBeUndefined();
  });

  it('takes the nearest valid time as the bound of a range', () => {
    expect(parseRangeBoundNs('1600-01-01T00:00:00Z')).toBe(0n);
    expect(parseRangeBoundNs('9999-12-31T23:59:59Z')).toBe(TIMESTAMP_MAX_NS);
    expect(parseRangeBoundNs('2026-02-30T00:00:00Z')).toBeUndefined();
  });
});
