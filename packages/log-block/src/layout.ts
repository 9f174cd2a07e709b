/**
 * `log-block` v1: the one binary form of a batch, from the API's memory to ClickHouse's socket.
 *
 * Little-endian. Columns hold the bytes of ClickHouse's Native format, so concatenated segments of a column are a
 * column. Nothing in a block depends on who wrote it.
 *
 *   offset  type           field
 *   0       4 B            magic `LPBB`
 *   4       u8, u8, u16    version = 1; flags = 0; reserved = 0
 *   8       u32, u16, u16  rows (1 to 65,535); columns; runs
 *   16      i64            received-at of the flush, ns since 1970
 *   24      u32, u32       CRC-32 (IEEE) of all bytes from 32; reserved = 0
 *   32      12 B a column  id u8, codec u8 (0 raw, 1 LZ4), reserved u16, stored bytes u32, raw bytes u32;
 *                          ids ascend
 *   next    48 B a run     project id 16 B, rows u32, body bytes u32, received-at i64, least and greatest `time` i64
 *   next    bytes          the segments in the order of the table, to the end of the block
 *
 * A run is the rows of one request; runs follow each other in row order. Segments are bare LZ4 blocks (no length in
 * front, no frame) or raw bytes.
 *
 *   id  column      wire type      encoding
 *   1   time        DateTime64(9)  Int64 ns
 *   2   service     String         varint length + UTF-8
 *   3   level       Int8           1 debug, 2 info, 3 warn, 4 error, 5 critical
 *   4   message     String         decoded UTF-8
 *   5   metadata    String         JSON text of an object
 *   6   trace_key   UUID           two LE UInt64, high half first; zero when neither UUID nor 32-hex
 *   7   trace_form  Int8           0 none, 1 lower-case UUID, 2 lower-case 32-hex, 3 text
 *   8   trace_text  String         text as sent when the form is 3, else empty
 *   9   span_id     String         text as sent; empty = absent
 *   10  session_id  String         text as sent; empty = absent
 *
 * Columns 1 to 5 are always there; 6 to 10 are left out when every row has the default, which is zero bytes on the
 * wire. Columns of unknown ids are skipped. Unknown version, bad CRC, wrong lengths or a raw size beyond the cap make
 * a poison block (BlockError), never a guess.
 */
export const BLOCK_MAGIC = 0x4242504c;
export const BLOCK_VERSION = 1;
export const HEADER_BYTES = 32;
export const COLUMN_BYTES = 12;
export const RUN_BYTES = 48;
export const CODEC_RAW = 0;
export const CODEC_LZ4 = 1;

export const BLOCK_ROWS_MAX = 65_535;
/** All columns of a block together, inflated. */
export const BLOCK_RAW_BYTES_MAX = 64 * 1024 * 1024;
/** Columns smaller than this are stored raw. */
export const LZ4_BYTES_MIN = 512;

export const COLUMN = {
  time: 1,
  service: 2,
  level: 3,
  message: 4,
  metadata: 5,
  traceKey: 6,
  traceForm: 7,
  traceText: 8,
  spanId: 9,
  sessionId: 10,
} as const;

export type ColumnId = (typeof COLUMN)[keyof typeof COLUMN];

/** Bytes of one row by column id; 0 for strings. Index 0 is unused. */
export const COLUMN_WIDTH = [0, 8, 0, 1, 0, 0, 16, 1, 0, 0, 0] as const;
export const COLUMN_ID_MAX = 10;
export const REQUIRED_COLUMN_ID_MAX = 5;

export const TRACE_FORM_UUID = 1;
export const TRACE_FORM_HEX = 2;
export const TRACE_FORM_TEXT = 3;

/** The rows of one request. `bodyBytes` is its body after inflating; times are inclusive bounds. */
export type RunSummary = {
  projectId: string;
  rows: number;
  bodyBytes: number;
  receivedAtNs: bigint;
  minTimeNs: bigint;
  maxTimeNs: bigint;
};

/** A block that cannot be read, ever: the sentence says what is wrong with it. */
export class BlockError extends Error {
  override readonly name = 'BlockError';
}
