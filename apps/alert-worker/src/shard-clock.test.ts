import { describe, expect, it } from 'vitest';
import { ShardClock } from './shard-clock.ts';

const NOW_MS = 1_790_000_000_000;

describe('the clock of a shard', () => {
  it('goes on from the last block received', () => {
    let elapsedMs = 1_000;
    const clock = new ShardClock({ elapsedMs: () => elapsedMs, startMs: undefined });
    elapsedMs += 60_000;
    expect(clock.read()).toBeUndefined();
    clock.see(NOW_MS);
    expect(clock.read()).toBe(NOW_MS);
    elapsedMs += 90_000;
    expect(clock.read()).toBe(NOW_MS + 90_000);
    clock.see(NOW_MS + 80_000);
    expect(clock.read()).toBe(NOW_MS + 80_000);
  });

  it('goes on from where it was left until a block comes', () => {
    let elapsedMs = 1_000;
    const clock = new ShardClock({ elapsedMs: () => elapsedMs, startMs: NOW_MS });
    elapsedMs += 5_000;
    expect(clock.read()).toBe(NOW_MS + 5_000);
  });
});
