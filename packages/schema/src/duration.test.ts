import { describe, expect, it } from 'vitest';
import { parseDurationMs } from './duration.ts';

describe('parseDurationMs', () => {
  it.each([
    ['1s', 1000],
    ['90m', 5_400_000],
    ['1h', 3_600_000],
    ['7d', 604_800_000],
    ['2w', 1_209_600_000],
  ])('reads %s as %i ms', (text, ms) => {
    expect(parseDurationMs(text)).toBe(ms);
  });

  it.each(['', '5', 'm', '0s', '-1s', '1.5h', '1 h', '1H', '1ms', '1h30m', '9999999999s', '999999999w'])(
    'refuses %s',
    (text) => {
      expect(parseDurationMs(text)).toBeUndefined();
    },
  );
});
