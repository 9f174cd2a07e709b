import { crc32 } from 'node:zlib';
import type { CheckedEntry } from '@logpond/schema/log-entry';
import { compressSync } from 'lz4-napi';
import { ColumnWriter } from './column-writer.ts';
import type { DigestItem } from './digest.ts';
import { DigestCounter, encodeDigest } from './digest.ts';
import type { RunSummary } from './layout.ts';
import {
  BLOCK_MAGIC,
  BLOCK_RAW_BYTES_MAX,
  BLOCK_ROWS_MAX,
  BLOCK_VERSION,
  CODEC_LZ4,
  CODEC_RAW,
  COLUMN_BYTES,
  HEADER_BYTES,
  LZ4_BYTES_MIN,
  RUN_BYTES,
  TRACE_FORM_HEX,
  TRACE_FORM_TEXT,
  TRACE_FORM_UUID,
} from './layout.ts';
import { uuidToBytes, writeUuidWire } from './uuid-bytes.ts';

/** A finished block, its digest and what its runs hold. */
export type EncodedBlock = { block: Buffer; digest: Buffer; rows: number; runs: RunSummary[] };

type Segment = { id: number; codec: number; rawBytes: number; bytes: Buffer };

/** The length that lz4-napi puts in front of the bare LZ4 block. */
const LZ4_LENGTH_BYTES = 4;
const UUID_BYTES = 16;
/** What filling in the defaults of the sparse columns may add when the block is finished. */
const SPARSE_BYTES_MAX = BLOCK_ROWS_MAX * (UUID_BYTES + 4);

/**
 * Collects the log entries of many requests into one block (layout.ts), column by column. Used again after finish;
 * its buffers stay at most 4 MB each between blocks. Forgetting a run costs nothing: the ends of the columns go back
 * to where they were. At most 65,535 rows and 64 MB of columns: the caller finishes in time.
 */
export class BlockEncoder {
  readonly #time = new ColumnWriter();
  readonly #service = new ColumnWriter();
  readonly #level = new ColumnWriter();
  readonly #message = new ColumnWriter();
  readonly #metadata = new ColumnWriter();
  readonly #traceKey = new ColumnWriter(UUID_BYTES);
  readonly #traceForm = new ColumnWriter(1);
  readonly #traceText = new ColumnWriter(1);
  readonly #spanId = new ColumnWriter(1);
  readonly #sessionId = new ColumnWriter(1);
  /** In the order of their ids, from 1. */
  readonly #columns: readonly ColumnWriter[] = [
    this.#time,
    this.#service,
    this.#level,
    this.#message,
    this.#metadata,
    this.#traceKey,
    this.#traceForm,
    this.#traceText,
    this.#spanId,
    this.#sessionId,
  ];
  readonly #sparse: readonly ColumnWriter[] = this.#columns.slice(5);
  readonly #savedEnds: number[] = this.#columns.map(() => 0);
  readonly #savedRows: number[] = this.#columns.map(() => 0);
  readonly #digest = new DigestCounter();
  #runs: RunSummary[] = [];
  #items: DigestItem[] = [];
  #rows = 0;
  #runFirstRow = 0;
  #runProjectId: string | undefined;
  #runReceivedAtNs = 0n;
  #runMinTimeNs = 0n;
  #runMaxTimeNs = 0n;

  get rows(): number {
    return this.#rows;
  }

  /** Ended runs. */
  get runs(): number {
    return this.#runs.length;
  }

  /** Bytes of all columns before compression; sparse columns as far as they are written. */
  get rawBytes(): number {
    let bytes = 0;
    for (const column of this.#columns) bytes += column.end;
    return bytes;
  }

  /** Starts the rows of one request. Throws when another run is open. */
  beginRun(projectId: string, receivedAtMs: number): void {
    if (this.#runProjectId !== undefined) throw new Error('cannot begin a run; another one is open');
    for (const [index, column] of this.#columns.entries()) {
      this.#savedEnds[index] = column.end;
      this.#savedRows[index] = column.rows;
    }
    this.#runProjectId = projectId;
    this.#runReceivedAtNs = BigInt(Math.trunc(receivedAtMs)) * 1_000_000n;
    this.#runFirstRow = this.#rows;
  }

  /** Adds one log entry to the open run. Throws RangeError when the block holds 65,535 rows. */
  appendEntry(entry: CheckedEntry): void {
    const row = this.#rows;
    if (this.#runProjectId === undefined) throw new Error('cannot append a log entry; no run is open');
    if (row >= BLOCK_ROWS_MAX) throw new RangeError(`expected at most ${BLOCK_ROWS_MAX} rows in a block`);
    const { timeNs, level, service, message, metadataJson, traceId, spanId, sessionId } = entry;
    this.#time.writeInt64(timeNs);
    this.#service.writeString(service);
    this.#level.writeByte(level);
    this.#message.writeString(message);
    this.#metadata.writeString(metadataJson);
    if (traceId !== undefined) this.#appendTrace(row, traceId);
    if (spanId !== undefined) appendSparse(this.#spanId, row, spanId);
    if (sessionId !== undefined) appendSparse(this.#sessionId, row, sessionId);
    if (row === this.#runFirstRow || timeNs < this.#runMinTimeNs) this.#runMinTimeNs = timeNs;
    if (row === this.#runFirstRow || timeNs > this.#runMaxTimeNs) this.#runMaxTimeNs = timeNs;
    this.#digest.add(level, Number(timeNs / 1_000_000_000n), service);
    this.#rows = row + 1;
  }

  #appendTrace(row: number, traceId: string): void {
    const key = this.#traceKey;
    key.skipTo(row);
    key.reserve(UUID_BYTES);
    const isLower = writeUuidWire(key.bytes, key.end, traceId, false);
    if (!isLower) {
      appendSparse(this.#traceText, row, traceId);
      const isUuid = writeUuidWire(key.bytes, key.end, traceId, true);
      if (!isUuid) key.bytes.fill(0, key.end, key.end + UUID_BYTES);
    }
    key.end += UUID_BYTES;
    this.#traceForm.skipTo(row);
    const lowerForm = traceId.length === 32 ? TRACE_FORM_HEX : TRACE_FORM_UUID;
    this.#traceForm.writeByte(isLower ? lowerForm : TRACE_FORM_TEXT);
  }

  /**
   * Closes the open run; one without rows leaves nothing. `bodyBytes`: the request's body after inflating. Throws
   * RangeError when the block has become too large; the run is still open then, to be aborted.
   */
  endRun(bodyBytes: number): void {
    const projectId = this.#runProjectId;
    if (projectId === undefined) throw new Error('cannot end a run; none is open');
    if (this.rawBytes > BLOCK_RAW_BYTES_MAX - SPARSE_BYTES_MAX) {
      throw new RangeError(`expected at most ${BLOCK_RAW_BYTES_MAX} bytes in a block, got ${this.rawBytes}`);
    }
    this.#runProjectId = undefined;
    const rows = this.#rows - this.#runFirstRow;
    if (rows === 0) return;
    for (const item of this.#digest.take(this.#runs.length)) this.#items.push(item);
    this.#runs.push({
      projectId,
      rows,
      bodyBytes,
      receivedAtNs: this.#runReceivedAtNs,
      minTimeNs: this.#runMinTimeNs,
      maxTimeNs: this.#runMaxTimeNs,
    });
  }

  /** Forgets the open run and its rows. */
  abortRun(): void {
    if (this.#runProjectId === undefined) return;
    this.#runProjectId = undefined;
    for (const [index, column] of this.#columns.entries()) {
      column.end = this.#savedEnds[index] ?? 0;
      column.rows = this.#savedRows[index] ?? 0;
    }
    this.#rows = this.#runFirstRow;
    this.#digest.clear();
  }

  /** The block of all ended runs; the encoder is empty afterwards. Throws when a run is open or there are no rows. */
  finish(receivedAtMs: number): EncodedBlock {
    if (this.#runProjectId !== undefined) throw new Error('cannot finish a block; a run is open');
    if (this.#rows === 0) throw new Error('cannot finish a block; it has no rows');
    for (const column of this.#sparse) column.fillTo(this.#rows);
    const segments = this.#columns
      .map((column, index) => compressColumn(index + 1, column))
      .filter(({ rawBytes }) => rawBytes > 0);
    const block = writeBlock(segments, this.#runs, this.#rows, BigInt(Math.trunc(receivedAtMs)) * 1_000_000n);
    const encoded = { block, digest: encodeDigest(this.#items), rows: this.#rows, runs: this.#runs };
    this.#reset();
    return encoded;
  }

  #reset(): void {
    for (const column of this.#columns) column.reset();
    this.#runs = [];
    this.#items = [];
    this.#rows = 0;
  }
}

function appendSparse(column: ColumnWriter, row: number, text: string): void {
  column.skipTo(row);
  column.writeString(text);
}

function compressColumn(id: number, column: ColumnWriter): Segment {
  const raw = column.bytes.subarray(0, column.end);
  if (raw.length >= LZ4_BYTES_MIN) {
    const packed = compressSync(raw);
    const bytes = packed.subarray(LZ4_LENGTH_BYTES);
    if (bytes.length < raw.length) return { id, codec: CODEC_LZ4, rawBytes: raw.length, bytes };
  }
  return { id, codec: CODEC_RAW, rawBytes: raw.length, bytes: raw };
}

function writeRun(block: Buffer, at: number, run: RunSummary): void {
  block.set(uuidToBytes(run.projectId), at);
  block.writeUInt32LE(run.rows, at + 16);
  block.writeUInt32LE(run.bodyBytes, at + 20);
  block.writeBigInt64LE(run.receivedAtNs, at + 24);
  block.writeBigInt64LE(run.minTimeNs, at + 32);
  block.writeBigInt64LE(run.maxTimeNs, at + 40);
}

function writeBlock(
  segments: readonly Segment[],
  runs: readonly RunSummary[],
  rows: number,
  nowNs: bigint,
): Buffer {
  const tableBytes = HEADER_BYTES + segments.length * COLUMN_BYTES + runs.length * RUN_BYTES;
  // Not from the shared pool: the block may wait for long and would keep the pool's other slices alive.
  const block = Buffer.allocUnsafeSlow(segments.reduce((sum, { bytes }) => sum + bytes.length, tableBytes));
  block.fill(0, 0, tableBytes);
  block.writeUInt32LE(BLOCK_MAGIC, 0);
  block.writeUInt8(BLOCK_VERSION, 4);
  block.writeUInt32LE(rows, 8);
  block.writeUInt16LE(segments.length, 12);
  block.writeUInt16LE(runs.length, 14);
  block.writeBigInt64LE(nowNs, 16);
  let at = HEADER_BYTES;
  for (const { id, codec, bytes, rawBytes } of segments) {
    block.writeUInt8(id, at);
    block.writeUInt8(codec, at + 1);
    block.writeUInt32LE(bytes.length, at + 4);
    block.writeUInt32LE(rawBytes, at + 8);
    at += COLUMN_BYTES;
  }
  for (const run of runs) {
    writeRun(block, at, run);
    at += RUN_BYTES;
  }
  for (const { bytes } of segments) {
    block.set(bytes, at);
    at += bytes.length;
  }
  block.writeUInt32LE(crc32(block.subarray(HEADER_BYTES)), 24);
  return block;
}
