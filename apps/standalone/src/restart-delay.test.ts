import { describe, expect, it } from 'vitest';
import { restartDelayMs } from './restart-delay.ts';

describe('restartDelayMs', () => {
  it('is short after one death, doubles, and never exceeds 10 s', () => {
    expect([1, 2, 3, 4, 8, 9, 1000].map(restartDelayMs)).toEqual([
      100, 200, 400, 800, 10_000, 10_000, 10_000,
    ]);
  });

  it('lets a process that is killed four times in a row be back within 2 s each time', () => {
    expect(Math.max(...[1, 2, 3, 4].map(restartDelayMs))).toBeLessThan(2_000);
  });
});
