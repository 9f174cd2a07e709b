import { comparePlaces, overlap } from './judge-order.ts';
import type { Range } from './judge-order.ts';

/** Rows that a block may have; the entries of a letter come from one block. */
const BLOCK_ROWS_MAX = 65_535;

/** A dead letter that nobody can read: what it holds is known by its place and number only. */
export type SealedLetter = {
  projectId: string;
  epoch: number;
  /** Of its first entry; the others follow within a block. */
  firstOffset: number;
  entries: number;
};

/** A request of which entries are not there, and where they must have been. */
export type Gap = {
  request: number;
  projectId: string;
  range: Range;
  /** Entries that were promised and are not there. */
  missing: number;
  /** Entries that may have been received, once more for each sending, and are not there. */
  room: number;
};

/**
 * Finds out which entries that are not there lie in sealed letters: each letter excuses as many as it holds, where it
 * lies.
 *
 * @returns the excused entries by request, and the letters that hold more than is gone: of those entries are
 *   somewhere else too.
 */
export function openLetters(
  letters: readonly SealedLetter[],
  gaps: readonly Gap[],
): { excused: Map<number, number>; overfull: { letter: SealedLetter; surplus: number }[] } {
  const excused = new Map<number, number>();
  const sealed = letters
    .map((letter) => ({ letter, range: rangeOf(letter), left: letter.entries }))
    .toSorted((a, b) => comparePlaces(a.range.from, b.range.from));
  // The gap that closes first has the fewest letters to choose from.
  const closing = gaps.toSorted((a, b) => comparePlaces(a.range.to, b.range.to));
  for (const countOf of [(gap: Gap) => gap.missing, (gap: Gap) => gap.room]) {
    for (const gap of closing) {
      const known = excused.get(gap.request) ?? 0;
      let wanted = countOf(gap) - known;
      for (const one of sealed) {
        if (wanted <= 0) break;
        if (one.letter.projectId !== gap.projectId || !overlap(one.range, gap.range)) continue;
        const taken = Math.min(wanted, one.left);
        one.left -= taken;
        wanted -= taken;
        excused.set(gap.request, (excused.get(gap.request) ?? 0) + taken);
      }
    }
  }
  const overfull = sealed
    .filter(({ left }) => left > 0)
    .map(({ letter, left }) => ({ letter, surplus: left }));
  return { excused, overfull };
}

function rangeOf({ epoch, firstOffset }: SealedLetter): Range {
  return { from: { epoch, base: firstOffset }, to: { epoch, base: firstOffset + BLOCK_ROWS_MAX } };
}
