const CAPACITY_MIN = 16 * 1024;
/** A larger buffer is given back after the block, so that one huge batch is not paid for ever after. */
const CAPACITY_KEPT_MAX = 4 * 1024 * 1024;
/** Texts up to this length are copied by hand while they are ASCII: a native call costs more. */
const SHORT_TEXT_LENGTH = 24;

/** Bytes that a varint of `value` takes. */
function varintBytes(value: number): number {
  return value < 0x80 ? 1 : value < 0x4000 ? 2 : value < 0x200000 ? 3 : value < 0x10000000 ? 4 : 5;
}

function writeVarint(target: Uint8Array, at: number, value: number): number {
  let rest = value;
  let end = at;
  while (rest >= 0x80) {
    target[end] = (rest & 0x7f) | 0x80;
    rest >>>= 7;
    end += 1;
  }
  target[end] = rest;
  return end + 1;
}

/**
 * One column of ClickHouse's Native format as it grows: a buffer that doubles and is used again for the next block.
 * What lies beyond `end` is undefined; going back to an earlier `end` (and `rows`) forgets what was written since.
 *
 * A sparse column is one whose rows are mostly the default, which is zero bytes. Its default rows cost nothing: they
 * are filled in when another value (skipTo) or the end of the block (fillTo) comes.
 */
export class ColumnWriter {
  bytes: Buffer = Buffer.allocUnsafeSlow(CAPACITY_MIN);
  end = 0;
  /** Rows written so far; kept for sparse columns only. */
  rows = 0;
  readonly #defaultBytes: number;

  /** `defaultBytes`: what a default row of a sparse column takes. */
  constructor(defaultBytes = 0) {
    this.#defaultBytes = defaultBytes;
  }

  /** Fills in defaults before row `row`, which the caller writes next. */
  skipTo(row: number): void {
    if (row > this.rows) this.#writeZeros((row - this.rows) * this.#defaultBytes);
    this.rows = row + 1;
  }

  /** Fills in defaults to the end of the block, unless every row has the default: then the column stays empty. */
  fillTo(rows: number): void {
    if (this.rows > 0) this.skipTo(rows);
  }

  /** Makes room for `more` bytes after `end`. */
  reserve(more: number): void {
    const needed = this.end + more;
    if (needed <= this.bytes.length) return;
    const grown = Buffer.allocUnsafeSlow(Math.max(needed, this.bytes.length * 2));
    this.bytes.copy(grown, 0, 0, this.end);
    this.bytes = grown;
  }

  writeByte(value: number): void {
    this.reserve(1);
    this.bytes[this.end] = value;
    this.end += 1;
  }

  writeInt64(value: bigint): void {
    this.reserve(8);
    this.bytes.writeBigInt64LE(value, this.end);
    this.end += 8;
  }

  /** A varint of the length in bytes, then UTF-8; a lone surrogate becomes U+FFFD. */
  writeString(text: string): void {
    const length = text.length;
    // Three bytes a UTF-16 unit at most, five for the length.
    this.reserve(length * 3 + 5);
    if (length <= SHORT_TEXT_LENGTH && this.#writeAscii(text)) return;
    const { bytes, end } = this;
    // As if it were ASCII; if not, the text moves by the byte or two that its length takes more.
    const guess = end + varintBytes(length);
    const written = bytes.write(text, guess);
    const start = end + varintBytes(written);
    if (start !== guess) bytes.copyWithin(start, guess, guess + written);
    writeVarint(bytes, end, written);
    this.end = start + written;
  }

  #writeZeros(count: number): void {
    this.reserve(count);
    this.bytes.fill(0, this.end, this.end + count);
    this.end += count;
  }

  #writeAscii(text: string): boolean {
    const { bytes, end } = this;
    const length = text.length;
    for (let index = 0; index < length; index += 1) {
      const unit = text.charCodeAt(index);
      if (unit >= 0x80) return false;
      bytes[end + 1 + index] = unit;
    }
    bytes[end] = length;
    this.end = end + 1 + length;
    return true;
  }

  /** Forgets all and gives back what is too large to keep. */
  reset(): void {
    this.end = 0;
    this.rows = 0;
    if (this.bytes.length > CAPACITY_KEPT_MAX) this.bytes = Buffer.allocUnsafeSlow(CAPACITY_MIN);
  }
}
