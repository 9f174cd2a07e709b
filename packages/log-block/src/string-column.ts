import { BlockError } from './layout.ts';

/**
 * Walks a column of ClickHouse strings (varint length, bytes) and writes where each row ends into `ends`, when given.
 * Throws BlockError unless the column holds exactly `rows` strings.
 */
export function walkStrings(column: Uint8Array, rows: number, ends?: Uint32Array): void {
  let at = 0;
  for (let row = 0; row < rows; row += 1) {
    let length = 0;
    let shift = 0;
    let byte = 0x80;
    while (byte >= 0x80 && shift < 28) {
      byte = column[at] ?? 0;
      length |= (byte & 0x7f) << shift;
      shift += 7;
      at += 1;
    }
    at += length;
    if (byte >= 0x80 || at > column.length)
      throw new BlockError(`string column: row ${row} goes beyond its end`);
    if (ends !== undefined) ends[row] = at;
  }
  if (at !== column.length) throw new BlockError(`string column: expected ${at} bytes, got ${column.length}`);
}

/** The text of a row that starts (with its length) at `start` and ends before `end`, as walkStrings found. */
export function readString(column: Buffer, start: number, end: number): string {
  let at = start;
  while ((column[at] ?? 0) >= 0x80) at += 1;
  return column.toString('utf8', at + 1, end);
}
