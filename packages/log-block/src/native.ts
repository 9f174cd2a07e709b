import type { DecodedBlock } from './decode.ts';
import { encodeSeq } from './entry-id.ts';
import type { ColumnId } from './layout.ts';
import { COLUMN, COLUMN_WIDTH } from './layout.ts';
import { writeUuidWire } from './uuid-bytes.ts';

/**
 * The columns of an insert, in the order of the table `logs` (storage.md §2). Types are those on the wire; the engine
 * converts String to LowCardinality and Int8 to the enums.
 */
export const NATIVE_COLUMNS = [
  { name: 'project_id', type: 'UUID' },
  { name: 'retention_days', type: 'UInt16' },
  { name: 'time', type: "DateTime64(9, 'UTC')" },
  { name: 'seq', type: 'UInt64' },
  { name: 'shard', type: 'UInt8' },
  { name: 'received_at', type: "DateTime64(3, 'UTC')" },
  { name: 'level', type: 'Int8' },
  { name: 'service', type: 'String' },
  { name: 'message', type: 'String' },
  { name: 'metadata', type: 'String' },
  { name: 'trace_key', type: 'UUID' },
  { name: 'trace_form', type: 'Int8' },
  { name: 'trace_text', type: 'String' },
  { name: 'span_id', type: 'String' },
  { name: 'session_id', type: 'String' },
] as const;

type NativeColumnName = (typeof NATIVE_COLUMNS)[number]['name'];

/** A block of the plan and the offset of its first row in the shard. */
export type PlanPart = { block: DecodedBlock; firstOffset: number };

/**
 * What the plan's rows are stored with. `keepRow` tells whether a row is still within its project's retention; for
 * one project it must hold for an interval of times, so that the ends of a run answer for all of it.
 */
export type PlanTarget = {
  epoch: number;
  shard: number;
  retentionClassOf: (projectId: string) => number;
  keepRow?: (entryTimeNs: bigint, projectId: string) => boolean;
  /** For a repair: only the rows with these offsets. */
  onlyOffsets?: ReadonlySet<number>;
};

/** One insert in ClickHouse's Native format; `rows` are in it, `expired` were left out. No rows: no chunks. */
export type NativePlan = { chunks: Buffer[]; rows: number; expired: number };

/** Kept rows [from, to) of one run. */
type Slice = { part: PlanPart; from: number; to: number; projectId: string; receivedAtNs: bigint };

/** ClickHouse's varint text: length, then bytes (all names and types are shorter than 128). */
function encodeText(text: string): Buffer {
  return Buffer.from(String.fromCharCode(text.length) + text, 'latin1');
}

function encodeVarint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 0x80; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 0x80);
  bytes.push(rest);
  return Buffer.from(bytes);
}

/** Appends the kept rows of one run, neighbours as one slice. */
function sliceRun(slices: Slice[], whole: Slice, isKept: (row: number) => boolean): void {
  let start = whole.from;
  for (let row = whole.from; row <= whole.to; row += 1) {
    if (row < whole.to && isKept(row)) continue;
    if (row > start) slices.push({ ...whole, from: start, to: row });
    start = row + 1;
  }
}

function slicePart(slices: Slice[], part: PlanPart, { keepRow = () => true, onlyOffsets }: PlanTarget): void {
  let from = 0;
  for (const { projectId, receivedAtNs, rows, minTimeNs, maxTimeNs } of part.block.runs) {
    const whole = { part, from, to: from + rows, projectId, receivedAtNs };
    from += rows;
    if (onlyOffsets === undefined && keepRow(minTimeNs, projectId) && keepRow(maxTimeNs, projectId)) {
      slices.push(whole);
      continue;
    }
    const times = part.block.column(COLUMN.time);
    sliceRun(
      slices,
      whole,
      (row) =>
        keepRow(times.readBigInt64LE(row * 8), projectId) &&
        (onlyOffsets?.has(part.firstOffset + row) ?? true),
    );
  }
}

/** Slices of whole neighbouring runs as one, for columns that do not depend on the run. */
function joinSlices(slices: readonly Slice[]): Slice[] {
  const joined: Slice[] = [];
  for (const slice of slices) {
    const last = joined.at(-1);
    if (last !== undefined && last.part === slice.part && last.to === slice.from) last.to = slice.to;
    else joined.push({ ...slice });
  }
  return joined;
}

/** Bytes of the rows of a block's own column, without copying. */
function cutColumn(block: DecodedBlock, id: ColumnId, from: number, to: number): Buffer {
  const column = block.column(id);
  if (from === 0 && to === block.rows) return column;
  const width = COLUMN_WIDTH[id];
  if (width > 0) return column.subarray(from * width, to * width);
  if (block.isAbsent(id)) return column.subarray(from, to);
  const ends = block.stringEnds(id);
  return column.subarray(from === 0 ? 0 : ends[from - 1], ends[to - 1]);
}

/** Bytes that repeat within each slice: `width` a row, written once a slice by `write` and then copied. */
function fillPerRun(
  slices: readonly Slice[],
  rows: number,
  width: number,
  write: (value: Buffer, slice: Slice) => void,
): Buffer {
  const column = Buffer.allocUnsafe(rows * width);
  const value = Buffer.alloc(width);
  let at = 0;
  for (const slice of slices) {
    const end = at + (slice.to - slice.from) * width;
    write(value, slice);
    column.fill(value, at, end);
    at = end;
  }
  return column;
}

function fillSeq(slices: readonly Slice[], rows: number, epoch: number): Buffer {
  // Two 32-bit halves instead of a BigInt a row: 250,000 rows a plan.
  const halves = new Uint32Array(rows * 2);
  let index = 0;
  for (const { part, from, to } of slices) {
    const first = encodeSeq(epoch, part.firstOffset + from);
    let low = Number(first & 0xffffffffn);
    let high = Number(first >> 32n);
    for (let row = from; row < to; row += 1) {
      halves[index] = low;
      halves[index + 1] = high;
      index += 2;
      low += 1;
      if (low < 2 ** 32) continue;
      low = 0;
      high += 1;
    }
  }
  return Buffer.from(halves.buffer);
}

function writeProjectId(value: Buffer, { projectId }: Slice): void {
  if (!writeUuidWire(value, 0, projectId, true))
    throw new RangeError(`expected a project UUID, got ${projectId}`);
}

type FillColumn = (slices: readonly Slice[], rows: number, target: PlanTarget) => Buffer;

/** Where each column comes from: a column of the blocks, or what the plan says. */
const SOURCES: Record<NativeColumnName, ColumnId | FillColumn> = {
  project_id: (slices, rows) => fillPerRun(slices, rows, 16, writeProjectId),
  retention_days: (slices, rows, { retentionClassOf }) =>
    fillPerRun(slices, rows, 2, (value, slice) => value.writeUInt16LE(retentionClassOf(slice.projectId), 0)),
  time: COLUMN.time,
  seq: (slices, rows, { epoch }) => fillSeq(slices, rows, epoch),
  shard: (_slices, rows, { shard }) => Buffer.alloc(rows, shard),
  received_at: (slices, rows) =>
    fillPerRun(slices, rows, 8, (value, slice) => value.writeBigInt64LE(slice.receivedAtNs / 1_000_000n, 0)),
  level: COLUMN.level,
  service: COLUMN.service,
  message: COLUMN.message,
  metadata: COLUMN.metadata,
  trace_key: COLUMN.traceKey,
  trace_form: COLUMN.traceForm,
  trace_text: COLUMN.traceText,
  span_id: COLUMN.spanId,
  session_id: COLUMN.sessionId,
};

/**
 * The rows of a plan as one block of ClickHouse's Native format (no revision: varint columns, varint rows, then per
 * column name, type, data). The same parts and target give the same bytes. Columns of the blocks are passed on as they
 * are; only runs of which `keepRow` refuses an end are looked at row by row. Throws BlockError.
 */
export function encodeNativePlan(parts: readonly PlanPart[], target: PlanTarget): NativePlan {
  const slices: Slice[] = [];
  for (const part of parts) slicePart(slices, part, target);
  const rows = slices.reduce((sum, { from, to }) => sum + to - from, 0);
  const total = parts.reduce((sum, { block }) => sum + block.rows, 0);
  if (rows === 0) return { chunks: [], rows: 0, expired: total };
  const joined = joinSlices(slices);
  const chunks = [encodeVarint(NATIVE_COLUMNS.length), encodeVarint(rows)];
  for (const { name, type } of NATIVE_COLUMNS) {
    chunks.push(encodeText(name), encodeText(type));
    const source = SOURCES[name];
    if (typeof source === 'function') {
      chunks.push(source(slices, rows, target));
      continue;
    }
    for (const { part, from, to } of joined) chunks.push(cutColumn(part.block, source, from, to));
  }
  return { chunks, rows, expired: total - rows };
}
