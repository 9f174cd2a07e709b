import { describe, expect, it } from 'vitest';
import { Pace } from './pace.ts';

const FLUSH = { intervalMs: 1_000, rowsMax: 250_000, bytesMax: 67_108_864 };
const QUICK_MS = 50;

function overload(pace: Pace, kind: 'parts' | 'busy' | 'memory', times: number): void {
  for (let time = 0; time < times; time += 1) pace.noteOverload(kind);
}

/** Inserts that go well until the pace is normal; how many it took. */
function recover(pace: Pace): number {
  const isNormal = (): boolean =>
    pace.limits.rowsMax === FLUSH.rowsMax && pace.restMs({ rows: 1, costMs: 0, isFull: true }) === 0;
  let inserts = 0;
  for (; !isNormal() && inserts < 100; inserts += 1) pace.noteInsert(QUICK_MS);
  return inserts;
}

describe('the pace of inserts', () => {
  it('rests ten times as long as a flush took, at most the interval, and 400 ms while few entries come', () => {
    const pace = new Pace(FLUSH);
    const rest = (rows: number, costMs: number): number => pace.restMs({ rows, costMs, isFull: false });
    expect([rest(5, 12), rest(5, 300), rest(5_000, 50), rest(5_000, 300)]).toEqual([120, 400, 500, 1_000]);
    expect(pace.restMs({ rows: 250_000, costMs: 900, isFull: true })).toBe(0);
    expect(pace.limits).toMatchObject({ rowsMax: 250_000, bytesMax: 67_108_864 });
  });

  it('with too many parts becomes fewer, larger inserts: up to 10 s apart, up to four times the rows', () => {
    const pace = new Pace(FLUSH);
    const seen: [number, number][] = [];
    for (let failure = 0; failure < 6; failure += 1) {
      overload(pace, 'parts', 1);
      seen.push([pace.restMs({ rows: 10, costMs: 1, isFull: true }), pace.limits.rowsMax]);
    }
    expect(seen).toEqual([
      [1_000, 500_000],
      [2_000, 1_000_000],
      [4_000, 1_000_000],
      [8_000, 1_000_000],
      [10_000, 1_000_000],
      [10_000, 1_000_000],
    ]);
  });

  it('of a busy server slows down without larger inserts', () => {
    const pace = new Pace(FLUSH);
    overload(pace, 'busy', 2);
    expect(pace.restMs({ rows: 10, costMs: 1, isFull: false })).toBe(2_000);
    expect(pace.limits.rowsMax).toBe(250_000);
  });

  it('halves the rows for a lack of memory and for an insert of more than 10 s, down to 1,000', () => {
    const pace = new Pace(FLUSH);
    overload(pace, 'memory', 1);
    expect(pace.limits.rowsMax).toBe(125_000);
    pace.noteInsert(10_001);
    expect(pace.limits.rowsMax).toBe(62_500);
    overload(pace, 'memory', 20);
    expect(pace.limits.rowsMax).toBe(1_000);
  });

  it('never asks for more rows than the settings when those are below 1,000', () => {
    const pace = new Pace({ ...FLUSH, rowsMax: 10 });
    overload(pace, 'memory', 3);
    expect(pace.limits.rowsMax).toBe(10);
  });

  it('comes back to normal step by step', () => {
    const slowed = new Pace(FLUSH);
    overload(slowed, 'parts', 10);
    slowed.noteInsert(QUICK_MS);
    expect(slowed.restMs({ rows: 1, costMs: 0, isFull: true })).toBe(8_000);
    expect(slowed.limits.rowsMax).toBe(800_000);
    expect(recover(slowed)).toBe(11);
    const small = new Pace(FLUSH);
    overload(small, 'memory', 20);
    small.noteInsert(QUICK_MS);
    expect(small.limits.rowsMax).toBe(1_250);
    expect(recover(small)).toBe(24);
  });
});
