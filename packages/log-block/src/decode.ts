import { crc32 } from 'node:zlib';
import { levelOfNumber } from '@logpond/schema/log-entry';
import { uncompressSync } from 'lz4-napi';
import type { ColumnId, RunSummary } from './layout.ts';
import {
  BLOCK_MAGIC,
  BLOCK_RAW_BYTES_MAX,
  BLOCK_ROWS_MAX,
  BLOCK_VERSION,
  BlockError,
  CODEC_LZ4,
  CODEC_RAW,
  COLUMN,
  COLUMN_BYTES,
  COLUMN_ID_MAX,
  COLUMN_WIDTH,
  HEADER_BYTES,
  REQUIRED_COLUMN_ID_MAX,
  RUN_BYTES,
  TRACE_FORM_HEX,
  TRACE_FORM_TEXT,
  TRACE_FORM_UUID,
} from './layout.ts';
import type { StoredEntry } from './entry-json.ts';
import { readString, walkStrings } from './string-column.ts';
import { addDashes, readHexWire, readUuidWire } from './uuid-bytes.ts';

/** One log entry of a block. `row` counts from 0 in the whole block, so its offset is the block's first plus `row`. */
export type BlockEntry = Omit<StoredEntry, 'id' | 'projectId'> & { runIndex: number; row: number };

/** What a block says of itself before its columns. */
export type BlockHeader = {
  rows: number;
  receivedAtNs: bigint;
  runs: RunSummary[];
  /** What its columns take when they are inflated. */
  rawBytes: number;
};

type Segment = { codec: number; bytes: Buffer; rawBytes: number };

/** An LZ4 block cannot hold more than this many times its own size. */
const LZ4_RATIO_MAX = 256;
const LZ4_LENGTH_BYTES = 4;

function readRun(block: Buffer, at: number): RunSummary {
  return {
    projectId: addDashes(block.toString('hex', at, at + 16)),
    rows: block.readUInt32LE(at + 16),
    bodyBytes: block.readUInt32LE(at + 20),
    receivedAtNs: block.readBigInt64LE(at + 24),
    minTimeNs: block.readBigInt64LE(at + 32),
    maxTimeNs: block.readBigInt64LE(at + 40),
  };
}

/** Bytes before the segments. Throws BlockError when the block is shorter or not one of version 1. */
function readTableBytes(block: Buffer): number {
  if (block.length < HEADER_BYTES || block.readUInt32LE(0) !== BLOCK_MAGIC)
    throw new BlockError('not a log block');
  const version = block.readUInt8(4);
  if (version !== BLOCK_VERSION)
    throw new BlockError(`expected block version ${BLOCK_VERSION}, got ${version}`);
  const bytes = HEADER_BYTES + block.readUInt16LE(12) * COLUMN_BYTES + block.readUInt16LE(14) * RUN_BYTES;
  if (bytes > block.length)
    throw new BlockError(`expected tables of ${bytes} bytes, got a block of ${block.length}`);
  return bytes;
}

/**
 * Rows, time and runs of a block without looking at its columns or its CRC: for code that decides whether to decode.
 * Throws BlockError when it is not a block of version 1, is cut short or its runs and rows disagree.
 */
export function readBlockHeader(block: Buffer): BlockHeader {
  const tableBytes = readTableBytes(block);
  const rows = block.readUInt32LE(8);
  const runs: RunSummary[] = [];
  const firstRun = HEADER_BYTES + block.readUInt16LE(12) * COLUMN_BYTES;
  for (let at = firstRun; at < tableBytes; at += RUN_BYTES) runs.push(readRun(block, at));
  const runRows = runs.reduce((sum, run) => sum + run.rows, 0);
  if (rows < 1 || rows > BLOCK_ROWS_MAX || runRows !== rows) {
    throw new BlockError(
      `expected 1 to ${BLOCK_ROWS_MAX} rows, all in runs; got ${rows} and ${runRows} in runs`,
    );
  }
  let rawBytes = 0;
  for (let at = HEADER_BYTES; at < firstRun; at += COLUMN_BYTES) rawBytes += block.readUInt32LE(at + 8);
  return { rows, receivedAtNs: block.readBigInt64LE(16), runs, rawBytes };
}

function checkSegment(id: number, { codec, bytes, rawBytes }: Segment, rows: number): void {
  const width = COLUMN_WIDTH[id] ?? 0;
  if (width > 0 && rawBytes !== rows * width) {
    throw new BlockError(`column ${id}: expected ${rows * width} bytes, got ${rawBytes}`);
  }
  const isPossible =
    codec === CODEC_RAW ? bytes.length === rawBytes : rawBytes <= bytes.length * LZ4_RATIO_MAX;
  if ((codec !== CODEC_RAW && codec !== CODEC_LZ4) || !isPossible) {
    throw new BlockError(`column ${id}: codec ${codec} with ${bytes.length} stored bytes for ${rawBytes}`);
  }
}

function readSegments(block: Buffer, rows: number): Map<number, Segment> {
  const segments = new Map<number, Segment>();
  const columns = block.readUInt16LE(12);
  let at = readTableBytes(block);
  let rawTotal = 0;
  let previousId = 0;
  for (let index = 0; index < columns; index += 1) {
    const entry = HEADER_BYTES + index * COLUMN_BYTES;
    const id = block.readUInt8(entry);
    const end = at + block.readUInt32LE(entry + 4);
    const rawBytes = block.readUInt32LE(entry + 8);
    rawTotal += rawBytes;
    if (id <= previousId || end > block.length || rawTotal > BLOCK_RAW_BYTES_MAX) {
      throw new BlockError(`column table: entry ${index} (column ${id}) is out of order or too large`);
    }
    const segment = { codec: block.readUInt8(entry + 1), bytes: block.subarray(at, end), rawBytes };
    if (id <= COLUMN_ID_MAX) {
      checkSegment(id, segment, rows);
      segments.set(id, segment);
    }
    previousId = id;
    at = end;
  }
  if (at !== block.length) throw new BlockError(`expected a block of ${at} bytes, got ${block.length}`);
  for (let id = 1; id <= REQUIRED_COLUMN_ID_MAX; id += 1) {
    if (!segments.has(id)) throw new BlockError(`column ${id} is missing`);
  }
  return segments;
}

function inflate(id: number, { codec, bytes, rawBytes }: Segment): Buffer {
  if (codec === CODEC_RAW) return bytes;
  const prefixed = Buffer.allocUnsafe(LZ4_LENGTH_BYTES + bytes.length);
  prefixed.writeUInt32LE(rawBytes, 0);
  prefixed.set(bytes, LZ4_LENGTH_BYTES);
  let raw: Buffer;
  try {
    raw = uncompressSync(prefixed);
  } catch (cause) {
    throw new BlockError(`column ${id}: not an LZ4 block`, { cause });
  }
  if (raw.length !== rawBytes)
    throw new BlockError(`column ${id}: expected ${rawBytes} bytes, got ${raw.length}`);
  return raw;
}

/** A block whose tables and CRC are right. Columns are inflated and checked when they are first asked for. */
export class DecodedBlock {
  readonly rows: number;
  readonly receivedAtNs: bigint;
  readonly runs: readonly RunSummary[];
  readonly #segments: Map<number, Segment>;
  readonly #columns = new Map<ColumnId, Buffer>();
  readonly #ends = new Map<ColumnId, Uint32Array>();

  /** Use decodeBlock. */
  constructor(header: BlockHeader, segments: Map<number, Segment>) {
    this.rows = header.rows;
    this.receivedAtNs = header.receivedAtNs;
    this.runs = header.runs;
    this.#segments = segments;
  }

  /** ClickHouse Native bytes of all rows; zero bytes where the block leaves the column out. Throws BlockError. */
  column(id: ColumnId): Buffer {
    const known = this.#columns.get(id);
    if (known !== undefined) return known;
    const segment = this.#segments.get(id);
    const width = COLUMN_WIDTH[id];
    // A default string is one byte: its length, zero.
    const column =
      segment === undefined ? Buffer.alloc(this.rows * Math.max(width, 1)) : inflate(id, segment);
    if (segment !== undefined && width === 0) walkStrings(column, this.rows);
    this.#columns.set(id, column);
    return column;
  }

  /** Whether no row has anything but the default in this column. */
  isAbsent(id: ColumnId): boolean {
    return !this.#segments.has(id);
  }

  /** Where each row of a string column ends in `column(id)`. Throws BlockError. */
  stringEnds(id: ColumnId): Uint32Array {
    let ends = this.#ends.get(id);
    if (ends === undefined) {
      ends = new Uint32Array(this.rows);
      walkStrings(this.column(id), this.rows, ends);
      this.#ends.set(id, ends);
    }
    return ends;
  }

  /** The log entries of all runs, or of one, in row order. Throws BlockError. */
  *entries(runIndex?: number): Generator<BlockEntry> {
    let row = 0;
    for (const [index, run] of this.runs.entries()) {
      const end = row + run.rows;
      if (runIndex !== undefined && index !== runIndex) row = end;
      for (; row < end; row += 1) yield this.#readEntry(index, row);
    }
  }

  #readEntry(runIndex: number, row: number): BlockEntry {
    const number = this.column(COLUMN.level).readInt8(row);
    const level = levelOfNumber(number);
    if (level === undefined) throw new BlockError(`row ${row}: expected a level from 1 to 5, got ${number}`);
    return {
      runIndex,
      row,
      timeNs: this.column(COLUMN.time).readBigInt64LE(row * 8),
      service: this.#readText(COLUMN.service, row),
      level,
      message: this.#readText(COLUMN.message, row),
      metadataJson: this.#readText(COLUMN.metadata, row),
      traceId: this.traceId(row),
      spanId: this.#readOptional(COLUMN.spanId, row),
      sessionId: this.#readOptional(COLUMN.sessionId, row),
    };
  }

  #readText(id: ColumnId, row: number): string {
    const ends = this.stringEnds(id);
    return readString(this.column(id), row === 0 ? 0 : (ends[row - 1] ?? 0), ends[row] ?? 0);
  }

  #readOptional(id: ColumnId, row: number): string | undefined {
    return this.isAbsent(id) ? undefined : this.#readText(id, row) || undefined;
  }

  /** The trace of a row as it was sent; undefined when it has none. Throws BlockError. */
  traceId(row: number): string | undefined {
    if (this.isAbsent(COLUMN.traceForm)) return undefined;
    const form = this.column(COLUMN.traceForm).readInt8(row);
    if (form === TRACE_FORM_UUID) return readUuidWire(this.column(COLUMN.traceKey), row * 16);
    if (form === TRACE_FORM_HEX) return readHexWire(this.column(COLUMN.traceKey), row * 16);
    return form === TRACE_FORM_TEXT ? this.#readText(COLUMN.traceText, row) : undefined;
  }
}

/**
 * Reads a block (layout.ts): magic, version, CRC, lengths and caps at once, columns when asked for. The block's memory
 * is used as it is and must not change. Throws BlockError.
 */
export function decodeBlock(block: Buffer): DecodedBlock {
  const header = readBlockHeader(block);
  const expected = block.readUInt32LE(24);
  const actual = crc32(block.subarray(HEADER_BYTES));
  if (actual !== expected) throw new BlockError(`expected CRC-32 ${expected}, got ${actual}`);
  return new DecodedBlock(header, readSegments(block, header.rows));
}
