import { ApiError } from '@logpond/schema/api-error';
import { describe, expect, it, vi } from 'vitest';
import { StreamRegistry } from './stream-registry.ts';

const yes = async (): Promise<boolean> => true;

function makeRegistry(): {
  registry: StreamRegistry;
  revoke: (keyId: string) => void;
  isListening: () => boolean;
} {
  const listeners = new Set<(keyId: string) => void>();
  const registry = new StreamRegistry((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  });
  return {
    registry,
    revoke: (keyId) => {
      for (const listener of listeners) listener(keyId);
    },
    isListening: () => listeners.size > 0,
  };
}

describe('StreamRegistry', () => {
  it('takes 100 streams of a project, refuses the next with 429, and takes one again when one is over', () => {
    const { registry } = makeRegistry();
    const places = Array.from({ length: 100 }, () => registry.open('p', 'k', yes));
    expect(() => registry.open('p', 'k', yes)).toThrow(ApiError);
    registry.open('other', 'k', yes);
    places[0]?.release();
    places[0]?.release();
    registry.open('p', 'k', yes);
    expect(() => registry.open('p', 'k', yes)).toThrow(/at most 100/);
    registry.close();
  });

  it('ends the streams of a revoked key at once and no others', () => {
    const { registry, revoke } = makeRegistry();
    const mine = registry.open('p', 'k1', yes);
    const other = registry.open('p', 'k2', yes);
    revoke('k1');
    expect([mine.signal.aborted, other.signal.aborted]).toEqual([true, false]);
    registry.close();
  });

  it('ends a stream whose credential no longer holds although nobody told, and keeps one that cannot be asked about', async () => {
    const { registry } = makeRegistry();
    let isAllowed = true;
    const mine = registry.open('p', 'k1', async () => isAllowed);
    const unsure = registry.open('p', 'k2', () => Promise.reject(new Error('Redis is down')));
    isAllowed = false;
    await vi.waitFor(() => expect(mine.signal.aborted).toBe(true), { timeout: 4_000 });
    expect(unsure.signal.aborted).toBe(false);
    registry.close();
  });

  it('asks about a stream again only when the question before is answered', async () => {
    vi.useFakeTimers();
    try {
      const { registry } = makeRegistry();
      const hanging = Promise.withResolvers<boolean>();
      let asked = 0;
      registry.open('p', 'k', () => {
        asked += 1;
        return hanging.promise;
      });
      await vi.advanceTimersByTimeAsync(10_000);
      expect(asked).toBe(1);
      hanging.resolve(true);
      await vi.advanceTimersByTimeAsync(1_500);
      expect(asked).toBe(2);
      registry.close();
    } finally {
      vi.useRealTimers();
    }
  });

  it('ends all streams at shutdown and refuses new ones with 503', () => {
    const { registry, isListening } = makeRegistry();
    const place = registry.open('p', undefined, yes);
    registry.close();
    expect(place.signal.aborted).toBe(true);
    expect(isListening()).toBe(false);
    expect(() => registry.open('p', undefined, yes)).toThrow(/stopping/);
  });
});
