/** The offsets `[from, to)` of a shard. */
export type OffsetRange = { from: number; to: number };

/** Writes ranges as the scripts keep them: `from-to`, with spaces between. */
export function writeRanges(ranges: readonly OffsetRange[]): string {
  return ranges.map(({ from, to }) => `${from}-${to}`).join(' ');
}

/** Reads what `writeRanges` wrote. */
export function readRanges(text: string): OffsetRange[] {
  return [...text.matchAll(/(\d+)-(\d+)/g)].map(([, from, to]) => ({ from: Number(from), to: Number(to) }));
}

/** The same offsets in order, neighbours as one. */
export function joinRanges(ranges: readonly OffsetRange[]): OffsetRange[] {
  const joined: OffsetRange[] = [];
  for (const { from, to } of ranges.toSorted((a, b) => a.from - b.from)) {
    const last = joined.at(-1);
    if (last !== undefined && from <= last.to) last.to = Math.max(last.to, to);
    else joined.push({ from, to });
  }
  return joined;
}

/** Offsets as ranges. */
export function rangesOf(offsets: Iterable<number>): OffsetRange[] {
  return joinRanges([...offsets].map((offset) => ({ from: offset, to: offset + 1 })));
}
