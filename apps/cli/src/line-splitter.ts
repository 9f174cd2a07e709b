/** A line without its line end. `part` is 0 for a whole line, else 1, 2, … for the pieces of one that was too long to hold. */
export type RawLine = { text: string; part: number };

const LINE_BYTES_MAX = 1024 * 1024;
const PIECE_BYTES_MAX = 65_536;
const LF = 10;
const CR = 13;

/**
 * Lines from chunks of bytes cut anywhere. Ends are LF and CRLF; a last line without one counts; a BOM
 * at the start is dropped; bytes that are no UTF-8 become U+FFFD. Of a line beyond 1 MB pieces of 64 KB
 * are handed out at once, cut between characters, so memory is bounded whatever comes.
 */
export class LineSplitter {
  #chunks: Buffer[] = [];
  #heldBytes = 0;
  #part = 0;
  #isStart = true;

  /** Takes a chunk and returns the lines that it completed. */
  push(chunk: Buffer): RawLine[] {
    const lines: RawLine[] = [];
    let start = 0;
    for (let end = chunk.indexOf(LF); end >= 0; end = chunk.indexOf(LF, start)) {
      this.#hold(chunk.subarray(start, end), lines);
      this.#endLine(lines);
      start = end + 1;
    }
    this.#hold(chunk.subarray(start), lines);
    return lines;
  }

  /** Returns the last line when the input did not end with a line end. */
  finish(): RawLine[] {
    const lines: RawLine[] = [];
    if (this.#heldBytes > 0) this.#endLine(lines);
    return lines;
  }

  #hold(bytes: Buffer, lines: RawLine[]): void {
    if (bytes.length === 0) return;
    this.#chunks.push(bytes);
    this.#heldBytes += bytes.length;
    if (this.#heldBytes > LINE_BYTES_MAX) this.#cutPieces(lines);
  }

  #cutPieces(lines: RawLine[]): void {
    const held = Buffer.concat(this.#chunks);
    let start = 0;
    while (held.length - start > PIECE_BYTES_MAX) {
      let end = start + PIECE_BYTES_MAX;
      // Step back over continuation bytes (10xxxxxx) to the start of a character; there are at most 3.
      for (let back = 0; back < 3 && ((held[end] ?? 0) & 0xc0) === 0x80; back++) end--;
      this.#part++;
      lines.push({ text: this.#decode(held.subarray(start, end)), part: this.#part });
      start = end;
    }
    this.#chunks = [held.subarray(start)];
    this.#heldBytes = held.length - start;
  }

  #endLine(lines: RawLine[]): void {
    const held = this.#chunks.length === 1 ? this.#chunks[0] : Buffer.concat(this.#chunks);
    const bytes = held ?? Buffer.alloc(0);
    const text = this.#decode(bytes.at(-1) === CR ? bytes.subarray(0, -1) : bytes);
    lines.push({ text, part: this.#part === 0 ? 0 : this.#part + 1 });
    this.#chunks = [];
    this.#heldBytes = 0;
    this.#part = 0;
  }

  #decode(bytes: Buffer): string {
    const text = bytes.toString('utf8');
    const isFirst = this.#isStart;
    this.#isStart = false;
    return isFirst && text.startsWith('\uFEFF') ? text.slice(1) : text;
  }
}
