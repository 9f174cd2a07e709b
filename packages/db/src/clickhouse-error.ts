import { ClickHouseError } from '@clickhouse/client';
import { StoreError } from './store-error.ts';
import type { StoreErrorKind } from './store-error.ts';

/** What the request was for; the same code means something else for a search than for an insert. */
export type ClickHouseUse = 'read' | 'insert' | 'internal';

/**
 * A search went over one of its limits: 158 rows, 159 time, 160 too slow, 191 set size, 241 memory,
 * 307 bytes, 396 result.
 */
const TOO_EXPENSIVE_CODES = new Set(['158', '159', '160', '191', '241', '307', '396']);
const MEMORY_LIMIT_CODE = '241';
const REGEX_CODE = '427';
const MESSAGE_LENGTH_MAX = 500;

/**
 * The bytes of an insert are at fault, so the same bytes fail every time: parsing, sizes, types, ranges, and a
 * constraint (469) that an operator put on the table. Not among them are unknown columns or tables: those are a
 * schema that is not there yet. Whatever is not listed may pass later and is worth a retry.
 */
const DATA_CODES = new Set(
  '6 9 20 26 27 32 33 38 41 50 53 69 70 72 117 131 321 349 407 432 469 691'.split(' '),
);
/** 252 is both "too many parts, wait" and "this one block spans too many partitions"; only the second is the data's fault. */
const TOO_MANY_PARTS_CODE = '252';

const TOO_MANY_QUERIES_CODE = '202';

/**
 * How a server that cannot keep up says so: `parts` (merges lag behind inserts), `memory` (this insert is too large
 * for it), `busy` (too many queries, a proxy's 429 or 503, no answer in time).
 */
export type Overload = 'parts' | 'memory' | 'busy';

/** Whether a failed insert says that the server is overloaded, and how; undefined for any other failure. */
export function readOverload({ kind, cause }: StoreError): Overload | undefined {
  if (kind !== 'unavailable') return undefined;
  if (cause instanceof ClickHouseError) {
    if (cause.code === TOO_MANY_PARTS_CODE) return 'parts';
    if (cause.code === MEMORY_LIMIT_CODE) return 'memory';
    return cause.code === TOO_MANY_QUERIES_CODE ? 'busy' : undefined;
  }
  // A connection that failed has a code. What has none came from the client's timeout or from something in between
  // that answered with a status and a text of its own.
  return cause instanceof Error && !('code' in cause) ? 'busy' : undefined;
}

/** What an insert was refused for, without ClickHouse's words: those quote the refused values. */
export function summarizeRefusal(error: StoreError): string {
  return error.message.split(':', 1)[0] ?? '';
}

/** Turns whatever the client threw into a StoreError; a StoreError passes unchanged. */
export function toStoreError(error: unknown, use: ClickHouseUse): StoreError {
  if (error instanceof StoreError) {
    return error;
  }
  if (error instanceof ClickHouseError) {
    return new StoreError('clickhouse', kindOf(error, use), describe(error), { cause: error });
  }
  const reason = error instanceof Error ? error.message : String(error);
  return new StoreError('clickhouse', 'unavailable', `ClickHouse did not answer: ${reason}`, {
    cause: error,
  });
}

/** Whether the connection broke before an answer, so that a read may simply be asked again. */
export function isBrokenConnection(error: unknown): boolean {
  if (!(error instanceof Error) || error instanceof ClickHouseError) {
    return false;
  }
  const code = 'code' in error ? error.code : undefined;
  return code === 'ECONNRESET' || code === 'EPIPE' || error.message === 'socket hang up';
}

function kindOf(error: ClickHouseError, use: ClickHouseUse): StoreErrorKind {
  if (use === 'insert') {
    const isTooManyPartitions =
      error.code === TOO_MANY_PARTS_CODE && /too many partitions/i.test(error.message);
    return DATA_CODES.has(error.code) || isTooManyPartitions ? 'invalid_query' : 'unavailable';
  }
  if (error.code === REGEX_CODE) {
    return 'invalid_query';
  }
  // The memory of the whole server, not of this query: the search is innocent.
  if (error.code === MEMORY_LIMIT_CODE && /\btotal\b/i.test(error.message)) {
    return 'unavailable';
  }
  return use === 'read' && TOO_EXPENSIVE_CODES.has(error.code) ? 'too_expensive' : 'unavailable';
}

function describe(error: ClickHouseError): string {
  if (error.code === REGEX_CODE) {
    const reason = /cannot compile re2: [^]*?, error: ([^]*?)\. Look at/.exec(error.message)?.[1];
    return `expected a regular expression in RE2 syntax, got one that does not compile: ${reason ?? 'unknown reason'}`;
  }
  return `ClickHouse code ${error.code} (${error.type ?? 'unknown'}): ${error.message.slice(0, MESSAGE_LENGTH_MAX)}`;
}
