/** Numbers in [0, 1) that a seed repeats (mulberry32, Tommy Ettinger, public domain). */
export type Random = () => number;

export function createRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The seed of a run, written to the terminal so that it can be given again as `SEED`. */
export function chooseSeed(test: string): number {
  const seed = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 31));
  process.stdout.write(`${test}: SEED=${seed}\n`);
  return seed;
}

/** An integer in [min, max]. */
export function pickInteger(random: Random, min: number, max: number): number {
  return min + Math.floor(random() * (max - min + 1));
}
