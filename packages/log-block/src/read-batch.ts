import type { ErrorDetail } from '@logpond/schema/api-error';
import { ApiError, ERROR_DETAILS_MAX } from '@logpond/schema/api-error';
import type { EntryContext } from '@logpond/schema/check-entry';
import { checkLogEntry, isRefusal } from '@logpond/schema/check-entry';
import { describeValue } from '@logpond/schema/describe-value';
import { parseExactJson } from '@logpond/schema/exact-json';
import { FUTURE_MAX_MS } from '@logpond/schema/log-entry';
import { BODY_DEPTH_MAX, scanBody } from './body-scan.ts';
import type { BlockEncoder } from './encode.ts';

/**
 * `retentionMs`: how far back an entry's time may lie. `batchMax`: entries in one body. `strict`: one refused entry
 * refuses the batch.
 */
export type BatchOptions = {
  format: 'json' | 'ndjson';
  projectId: string;
  nowMs: number;
  retentionMs: number;
  batchMax: number;
  strict: boolean;
};

/** A refused entry; `index` counts the batch's entries from 0. */
type RejectedEntry = { index: number; code: string; message: string; path?: string };

/** `rejected` holds the first 20 of `rejectedCount`. */
export type BatchOutcome = { accepted: number; rejected: RejectedEntry[]; rejectedCount: number };

type ParseJson = (text: string) => unknown;

const REJECTED_MAX = ERROR_DETAILS_MAX;

/** The body as text; a byte order mark is dropped, invalid UTF-8 becomes U+FFFD. */
function decodeText(body: Buffer): string {
  const hasMark = body.length >= 3 && body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf;
  return body.toString('utf8', hasMark ? 3 : 0);
}

function explainSyntax(cause: unknown): string {
  const reason = cause instanceof Error ? cause.message.slice(0, 160) : 'syntax error';
  return `expected JSON, got text that is not: ${reason}`;
}

function refuseBody(message: string): never {
  throw new ApiError('VALIDATION_ERROR', { public: message });
}

/** The entries of `{"logs": […]}` or of a bare array. */
function parseEntries(text: string, parse: ParseJson): unknown[] {
  let body: unknown;
  try {
    body = parse(text);
  } catch (cause) {
    throw new ApiError('INVALID_JSON', { public: explainSyntax(cause), cause });
  }
  const isObject = typeof body === 'object' && body !== null && !Array.isArray(body);
  const logs = isObject ? (body as Record<string, unknown>)['logs'] : body;
  if (Array.isArray(logs)) return logs as unknown[];
  return refuseBody(`logs: expected {"logs": [...]} or an array of log entries, got ${describeValue(logs)}`);
}

function checkSize(entries: number, batchMax: number): void {
  if (entries === 0) refuseBody('logs: expected at least one log entry, got none');
  if (entries <= batchMax) return;
  throw new ApiError('BATCH_TOO_LARGE', {
    public: `logs: expected at most ${batchMax} log entries in a batch, got ${entries}`,
  });
}

function noteRejected(outcome: BatchOutcome, rejected: RejectedEntry): void {
  outcome.rejectedCount += 1;
  if (outcome.rejected.length < REJECTED_MAX) outcome.rejected.push(rejected);
}

function appendChecked(
  value: unknown,
  index: number,
  context: EntryContext,
  encoder: BlockEncoder,
  outcome: BatchOutcome,
): void {
  const entry = checkLogEntry(value, context);
  if (isRefusal(entry)) {
    const { code, path, message } = entry;
    noteRejected(outcome, { index, code, path, message: path === '' ? message : `${path}: ${message}` });
    return;
  }
  encoder.appendEntry(entry);
  outcome.accepted += 1;
}

function appendLines(
  lines: readonly string[],
  parse: ParseJson,
  context: EntryContext,
  encoder: BlockEncoder,
  outcome: BatchOutcome,
): void {
  for (const [index, line] of lines.entries()) {
    let value: unknown;
    try {
      value = parse(line);
    } catch (cause) {
      noteRejected(outcome, { index, code: 'INVALID_JSON', message: explainSyntax(cause) });
      continue;
    }
    appendChecked(value, index, context, encoder, outcome);
  }
}

/** Throws when nothing of the batch is to be stored. */
function checkOutcome({ accepted, rejected, rejectedCount }: BatchOutcome, strict: boolean): void {
  if (rejectedCount === 0 || (accepted > 0 && !strict)) return;
  const total = accepted + rejectedCount;
  const details: ErrorDetail[] = rejected.map(({ index, path = '', message }) => ({
    index,
    path,
    message: path === '' ? message : message.slice(path.length + 2),
  }));
  const first = rejected[0];
  throw new ApiError('VALIDATION_ERROR', {
    public:
      `${rejectedCount} of ${total} log entries refused, nothing stored; ` +
      `entry ${first?.index ?? 0}: ${first?.message ?? ''}`,
    details,
  });
}

function appendBatch(
  text: string,
  hasRawNumbers: boolean,
  options: BatchOptions,
  encoder: BlockEncoder,
): BatchOutcome {
  const { nowMs, retentionMs, batchMax, strict } = options;
  const now = Math.trunc(nowMs);
  const parse: ParseJson = hasRawNumbers ? parseExactJson : JSON.parse;
  const context: EntryContext = {
    nowMs: now,
    minTimeNs: BigInt(Math.max(0, now - Math.trunc(retentionMs))) * 1_000_000n,
    maxTimeNs: BigInt(now + FUTURE_MAX_MS) * 1_000_000n,
    hasRawNumbers,
  };
  const outcome: BatchOutcome = { accepted: 0, rejected: [], rejectedCount: 0 };
  if (options.format === 'ndjson') {
    const lines = text.split('\n').filter((line) => line.trim() !== '');
    checkSize(lines.length, batchMax);
    appendLines(lines, parse, context, encoder, outcome);
  } else {
    const entries = parseEntries(text, parse);
    checkSize(entries.length, batchMax);
    for (let index = 0; index < entries.length; index += 1) {
      appendChecked(entries[index], index, context, encoder, outcome);
    }
  }
  checkOutcome(outcome, strict);
  return outcome;
}

/**
 * Reads one request body (after inflating) into `encoder` as one run, entry by entry; refused entries are named.
 * `{"logs": […]}`, a bare array, or one object a line (NDJSON, empty lines skipped; a line that is not JSON is one
 * refused entry). Throws ApiError INVALID_JSON, BATCH_TOO_LARGE or VALIDATION_ERROR (also when every entry is
 * refused, or one is with `strict`) and RangeError when the block is full: the encoder is then as before the call.
 */
export function readBatch(body: Buffer, options: BatchOptions, encoder: BlockEncoder): BatchOutcome {
  const { isTooDeep, mayHoldInexactNumber } = scanBody(body, options.format === 'ndjson');
  if (isTooDeep) {
    refuseBody(`expected at most ${BODY_DEPTH_MAX} nested levels in a body, got more`);
  }
  const text = decodeText(body);
  encoder.beginRun(options.projectId, options.nowMs);
  try {
    const outcome = appendBatch(text, mayHoldInexactNumber, options, encoder);
    encoder.endRun(body.length);
    return outcome;
  } catch (error) {
    encoder.abortRun();
    throw error;
  }
}
