import { createHash } from 'node:crypto';
import type { DeadLetter, DeadLetterContent, DeadLetters } from '@logpond/db/dead-letters';
import { BlockEncoder } from '@logpond/log-block/encode';
import { readBatch } from '@logpond/log-block/read-batch';
import { ApiError, ERROR_DETAILS_MAX } from '@logpond/schema/api-error';
import type { IngestReceipt } from '@logpond/schema/log-batch';
import type { IngestFlush } from './ingest-flush.ts';
import type { IngestRequest } from './ingest-request.ts';

/** A part is sent at once when it has so many entries, or so many bytes; so it may be one entry larger. */
const PART_LINES_MAX = 1_000;
const PART_BYTES_MIN = 1024 * 1024;

/** `firstIndex`: of its first line among the letter's; `linesBehind`: lines of the letter after it. */
type Part = { lines: Buffer[]; firstIndex: number; linesBehind: number };
type PartOutcome = { receipt: IngestReceipt; refused: Buffer[] };

/**
 * Sends the entries of a letter the way that they came, part by part, and takes each part out of the letter once it
 * is stored; what is refused (too old by now, say) stays in it, before the parts that are not sent yet. Then removes
 * the letter when nothing is left.
 *
 * So a replay that broke off is repeated from where it was. Only of the part that was in hand it may be unknown
 * whether it is stored: each part carries an Idempotency-Key made from the letter, its place and its bytes, so a
 * repetition within an hour stores it once, also by two callers.
 *
 * @returns one receipt for all; `index` counts the entries of the letter.
 * @throws {ApiError} CONFLICT for a letter that cannot be read, or is being replayed or was changed meanwhile;
 *   VALIDATION_ERROR when every entry is refused; BACKPRESSURE, UNAVAILABLE: not all was stored, replay it again.
 * @throws {StoreError} `unavailable`: not confirmed, replay it again.
 */
export async function replayDeadLetter(
  { letter, payload, isReadable }: DeadLetterContent,
  retentionMs: number,
  { flush, deadLetters }: { flush: Pick<IngestFlush, 'submit'>; deadLetters: DeadLetters },
): Promise<IngestReceipt> {
  if (!isReadable) throw refuseUnreadable();
  const parts = divide(payload);
  const receipts: IngestReceipt[] = [];
  const refused: Buffer[] = [];
  let now = letter;
  for (const [turn, part] of parts.entries()) {
    const request: IngestRequest = {
      projectId: letter.projectId,
      retentionMs,
      body: Buffer.concat(part.lines),
      format: 'ndjson',
      strict: false,
      batchMax: PART_LINES_MAX,
    };
    const outcome = await submitPart(letter.id, part, request, flush);
    receipts.push(outcome.receipt);
    refused.push(...outcome.refused);
    const left = [...refused, ...parts.slice(turn + 1).flatMap(({ lines }) => lines)];
    if (outcome.receipt.received > 0 && left.length > 0) now = await keepOnly(now, left, deadLetters);
  }
  const receipt = addUp(receipts);
  if (receipt.received === 0) throw refuseAll(receipt);
  if (refused.length === 0) await deadLetters.remove(letter.projectId, letter.id);
  return receipt;
}

/** @throws {ApiError} CONFLICT when the letter is not as it was read any more. */
async function keepOnly(
  letter: DeadLetter,
  lines: readonly Buffer[],
  deadLetters: DeadLetters,
): Promise<DeadLetter> {
  const payload = Buffer.concat(lines);
  if (await deadLetters.keepOnly(letter, { entries: lines.length, payload }))
    return { ...letter, entries: lines.length, bytes: payload.length };
  throw new ApiError('CONFLICT', {
    public:
      'the letter is being replayed by another request, or was deleted meanwhile; look at what is left of it',
  });
}

/** The answer for a letter whose entries are lost in a damaged block. */
export function refuseUnreadable(): ApiError {
  return new ApiError('CONFLICT', {
    public:
      'the entries of this letter cannot be read any more: their block was damaged; it can only be deleted (ask the operator, who can look at its bytes)',
  });
}

/**
 * Cuts from the end: a part ends where its own lines fill it, and the first takes what is left. So the parts that are
 * not stored yet stay the same parts, whatever is put before them.
 */
function divide(payload: Buffer): Part[] {
  const lines = splitLines(payload);
  const parts: Part[] = [];
  let end = lines.length;
  let bytes = 0;
  for (let first = lines.length - 1; first >= 0; first -= 1) {
    bytes += lines[first]?.length ?? 0;
    if (first > 0 && end - first < PART_LINES_MAX && bytes < PART_BYTES_MIN) continue;
    parts.push({ lines: lines.slice(first, end), firstIndex: first, linesBehind: lines.length - end });
    end = first;
    bytes = 0;
  }
  return parts.toReversed();
}

/** Whole lines, each with its line end. */
function splitLines(payload: Buffer): Buffer[] {
  const lines: Buffer[] = [];
  for (let at = 0; at < payload.length;) {
    const end = payload.indexOf(0x0a, at);
    const next = end === -1 ? payload.length : end + 1;
    lines.push(payload.subarray(at, next));
    at = next;
  }
  return lines;
}

async function submitPart(
  letterId: string,
  part: Part,
  request: IngestRequest,
  flush: Pick<IngestFlush, 'submit'>,
): Promise<PartOutcome> {
  const hash = createHash('sha256').update(request.body).digest('hex').slice(0, 32);
  // Parts may hold the same lines: their places tell them apart.
  const idempotencyKey = `dead-letter:${letterId}:${part.linesBehind}:${hash}`;
  let receipt: IngestReceipt;
  try {
    const { receiptJson } = await flush.submit({ ...request, idempotencyKey });
    receipt = JSON.parse(receiptJson) as IngestReceipt;
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== 'VALIDATION_ERROR') throw error;
    return { receipt: describeRefusal(error, part), refused: part.lines };
  }
  const rejected = receipt.rejected?.map((one) => ({ ...one, index: one.index + part.firstIndex }));
  if (rejected === undefined) return { receipt, refused: [] };
  return { receipt: { ...receipt, rejected }, refused: findRefused(part, request, receipt) };
}

/** Nothing of the part was stored. */
function describeRefusal(error: ApiError, part: Part): IngestReceipt {
  const rejected = (error.details ?? []).map(({ index = 0, message }) => ({
    index: index + part.firstIndex,
    code: error.code,
    message,
  }));
  return {
    received: 0,
    timestamp: new Date(0).toISOString(),
    rejected,
    rejectedCount: part.lines.length,
  };
}

/**
 * The receipt names only the first 20: each line is read again by the clock of the receipt, which judges as it was
 * judged then.
 *
 * @throws {ApiError} CONFLICT when it does not (the retention was changed meanwhile); the letter stays whole.
 */
function findRefused(part: Part, request: IngestRequest, receipt: IngestReceipt): Buffer[] {
  const { projectId, retentionMs } = request;
  const nowMs = Date.parse(receipt.timestamp);
  const scratch = new BlockEncoder();
  const refused = part.lines.filter((line) => {
    try {
      readBatch(
        line,
        { format: 'ndjson', projectId, nowMs, retentionMs, batchMax: 1, strict: true },
        scratch,
      );
      return false;
    } catch (error) {
      if (error instanceof ApiError) return true;
      throw error;
    }
  });
  if (refused.length === receipt.rejectedCount) return refused;
  throw new ApiError('CONFLICT', {
    public: `${receipt.received} entries were stored, but the rules changed meanwhile: what was refused cannot be told; the letter stays as it is`,
  });
}

function addUp(receipts: readonly IngestReceipt[]): IngestReceipt {
  const received = receipts.reduce((sum, receipt) => sum + receipt.received, 0);
  const rejectedCount = receipts.reduce((sum, receipt) => sum + (receipt.rejectedCount ?? 0), 0);
  const rejected = receipts.flatMap((receipt) => receipt.rejected ?? []).slice(0, ERROR_DETAILS_MAX);
  const timestamp = receipts.map((receipt) => receipt.timestamp).reduce((a, b) => (a > b ? a : b), '');
  return { received, timestamp, ...(rejectedCount === 0 ? {} : { rejected, rejectedCount }) };
}

function refuseAll({ rejected = [], rejectedCount = 0 }: IngestReceipt): ApiError {
  const [first] = rejected;
  return new ApiError('VALIDATION_ERROR', {
    public: `all ${rejectedCount} log entries of the letter are refused, it stays as it is; entry ${first?.index ?? 0}: ${first?.message ?? ''}`,
    details: rejected.map(({ index, message }) => ({ index, path: '', message })),
  });
}
