import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { WebhookTurns } from './webhook-turns.ts';

const START_MS = 1_000_000_000;

let turns: WebhookTurns;
beforeEach(() => {
  vi.useFakeTimers({ now: START_MS });
  turns = new WebhookTurns(Date.now);
});
afterEach(() => vi.useRealTimers());

async function takeTurn(projectId: string): Promise<() => void> {
  const turn = await turns.take(projectId);
  if (!('end' in turn)) throw new TypeError('expected a turn');
  return turn.end;
}

/** Four posts of a project that never end, after others that took ten seconds each. */
async function fillWithSlow(): Promise<void> {
  const ends = await Promise.all(Array.from({ length: 4 }, async () => takeTurn('a')));
  vi.advanceTimersByTime(10_000);
  ends[0]?.();
  await takeTurn('a');
}

async function findPause(): Promise<number> {
  const turn = await turns.take('a');
  if ('end' in turn) throw new TypeError('expected no turn');
  return turn.atMs - Date.now();
}

it('a project has four posts at a time, whatever another one has; the next begins when one ends', async () => {
  const ends = await Promise.all(Array.from({ length: 4 }, async () => takeTurn('a')));
  const begun: string[] = [];
  const fifth = takeTurn('a').then((end) => (begun.push('fifth'), end));
  const sixth = takeTurn('a').then((end) => (begun.push('sixth'), end));
  await takeTurn('b');
  await vi.advanceTimersByTimeAsync(100);
  expect(begun).toEqual([]);
  ends[0]?.();
  await fifth;
  expect(begun).toEqual(['fifth']);
  ends[1]?.();
  await sixth;
});

it('a turn is waited for half a second at most', async () => {
  await Promise.all(Array.from({ length: 4 }, async () => takeTurn('a')));
  const pause = findPause();
  await vi.advanceTimersByTimeAsync(500);
  expect(await pause).toBe(250);
  // Now it is known that they are slow.
  expect(await findPause()).toBe(750);
});

it('those that find no turn come one behind the other, as fast as the posts of the project, within a minute', async () => {
  await fillWithSlow();
  const pauses: number[] = [];
  for (let post = 0; post < 100; post += 1) pauses.push(await findPause());
  expect(pauses.slice(0, 4)).toEqual([250, 2_750, 5_250, 7_750]);
  expect(pauses.slice(30)).toEqual(Array.from({ length: 70 }, () => 60_000));
});

it('a turn is asked for soon again when the clock was set back', async () => {
  await fillWithSlow();
  await findPause();
  vi.setSystemTime(START_MS / 2);
  expect(await findPause()).toBe(60_000);
});

it('whoever waited in vain takes no turn that comes later', async () => {
  const ends = await Promise.all(Array.from({ length: 4 }, async () => takeTurn('a')));
  const pause = findPause();
  await vi.advanceTimersByTimeAsync(500);
  await pause;
  for (const end of ends) end();
  expect(await Promise.all(Array.from({ length: 4 }, async () => takeTurn('a')))).toHaveLength(4);
});
