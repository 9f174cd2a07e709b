import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { nextDelayMs, parseRetryAfterMs, pause } from './back-off.ts';

describe('nextDelayMs', () => {
  it('grows to 15 s and is never without a pause', () => {
    fc.assert(
      fc.property(fc.nat(10_000), fc.double({ min: 0, max: 0.999, noNaN: true }), (attempt, random) => {
        const delayMs = nextDelayMs(attempt, undefined, () => random);
        expect(delayMs).toBeGreaterThanOrEqual(100);
        expect(delayMs).toBeLessThanOrEqual(15_000);
      }),
    );
  });

  it('never comes back before Retry-After, nor later than a fifth after it', () => {
    fc.assert(
      fc.property(
        fc.nat(50),
        fc.integer({ min: 200, max: 300_000 }),
        fc.double({ min: 0, max: 0.999, noNaN: true }),
        (attempt, askedMs, random) => {
          const delayMs = nextDelayMs(attempt, askedMs, () => random);
          expect(delayMs).toBeGreaterThanOrEqual(askedMs);
          expect(delayMs).toBeLessThanOrEqual(Math.ceil(askedMs * 1.2));
        },
      ),
    );
  });
});

it('Retry-After is read as seconds or as a date', () => {
  const nowMs = Date.parse('2026-11-21T13:00:00Z');
  expect(parseRetryAfterMs('3', nowMs)).toBe(3000);
  expect(parseRetryAfterMs('Sat, 21 Nov 2026 13:00:05 GMT', nowMs)).toBe(5000);
  expect(parseRetryAfterMs('Sat, 21 Nov 2026 12:00:05 GMT', nowMs)).toBe(0);
  expect(parseRetryAfterMs('soon', nowMs)).toBeUndefined();
  expect(parseRetryAfterMs(null, nowMs)).toBeUndefined();
});

it('a pause ends at once when it is aborted', async () => {
  const controller = new AbortController();
  const paused = pause(60_000, controller.signal);
  controller.abort(new Error('stop'));
  await expect(paused).rejects.toThrow('stop');
});
