import { expect, it } from 'vitest';
import type { SampleEntry } from './notice.ts';
import { gatherSamples } from './samples.ts';

const ENTRY: SampleEntry = { time: '2026-11-21T19:45:00Z', level: 'error', service: 'web', message: 'no' };

function give(count: number): readonly SampleEntry[] {
  return Array.from({ length: count }, () => ENTRY);
}

it('asks again until what was counted is stored too', async () => {
  const answers = [0, 2, 5];
  let asked = 0;
  const samples = await gatherSamples(async () => give(answers[asked++] ?? 5), 57, 0);
  expect(samples).toHaveLength(5);
  expect(asked).toBe(3);
});

it('asks for no more than were counted', async () => {
  let asked = 0;
  const ask = async (): Promise<readonly SampleEntry[]> => {
    asked += 1;
    return give(2);
  };
  expect(await gatherSamples(ask, 2, 0)).toHaveLength(2);
  expect(asked).toBe(1);
});

it('goes without them when the store fails, and does not ask again', async () => {
  let asked = 0;
  const ask = async (): Promise<readonly SampleEntry[]> => {
    asked += 1;
    throw new Error('away');
  };
  expect(await gatherSamples(ask, 5, 0)).toEqual([]);
  expect(asked).toBe(1);
});

it('waits a second for a store that is silent, and less for a notification that is late', async () => {
  const startedMs = performance.now();
  const ask = async (): Promise<never> => new Promise(() => {});
  expect(await gatherSamples(ask, 5, 60_000)).toEqual([]);
  const lateMs = performance.now() - startedMs;
  expect(await gatherSamples(ask, 5, 0)).toEqual([]);
  const freshMs = performance.now() - startedMs - lateMs;
  expect(freshMs).toBeGreaterThan(lateMs);
});
