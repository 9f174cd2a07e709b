import { describe, expect, it } from 'vitest';
import { Bell } from './bell.ts';

const LONG_MS = 60_000;

describe('a bell', () => {
  it('wakes who waits, and a ring that nobody heard is heard once', async () => {
    const bell = new Bell();
    const { signal } = new AbortController();
    const waiting = bell.wait(LONG_MS, signal);
    bell.ring();
    await waiting;
    bell.ring();
    bell.ring();
    await bell.wait(LONG_MS, signal);
    let isOver = false;
    const third = bell.wait(50, signal).then(() => {
      isOver = true;
    });
    await Promise.resolve();
    expect(isOver).toBe(false);
    await third;
  });

  it('lets go when the signal is aborted, before or while it is waited for', async () => {
    const bell = new Bell();
    const controller = new AbortController();
    const waiting = bell.wait(LONG_MS, controller.signal);
    controller.abort();
    await expect(waiting).resolves.toBeUndefined();
    await expect(bell.wait(LONG_MS, controller.signal)).resolves.toBeUndefined();
  });
});
