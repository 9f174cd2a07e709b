import { createHash } from 'node:crypto';
import type { DeadLetterContent, DeadLetters } from '@logpond/db/dead-letters';
import { BlockEncoder } from '@logpond/log-block/encode';
import { readBatch } from '@logpond/log-block/read-batch';
import { ApiError, ERROR_DETAILS_MAX } from '@logpond/schema/api-error';
import type { IngestReceipt } from '@logpond/schema/log-batch';
import type { IngestFlush } from './ingest-flush.ts';
import type { IngestRequest } from './ingest-request.ts';

/** Entries and bytes that are sent at once; a single larger entry is sent alone. */
const PART_LINES_MAX = 1_000;
const PART_BYTES_MAX = 1024 * 1024;

type Part = { lines: Buffer[]; firstIndex: number };
type PartOutcome = { receipt: IngestReceipt; refused: Buffer[] };

/**
 * Sends the entries of a letter the way that they came, part by part, then removes the letter, or leaves in it what
 * was refused (too old by now, say).
 *
 * Each part carries an Idempotency-Key made from the letter and its bytes: a replay that is repeated, after a crash
 * or by two callers, within an hour stores each entry once.
 *
 * @returns one receipt for all; `index` counts the entries of the letter.
 * @throws {ApiError} CONFLICT for a letter that cannot be read, or is being replayed; VALIDATION_ERROR when every
 *   entry is refused; BACKPRESSURE, UNAVAILABLE: not all was stored, replay it again.
 * @throws {StoreError} `unavailable`: not confirmed, replay it again.
 */
export async function replayDeadLetter(
  { letter, payload, isReadable }: DeadLetterContent,
  retentionMs: number,
  { flush, deadLetters }: { flush: Pick<IngestFlush, 'submit'>; deadLetters: DeadLetters },
): Promise<IngestReceipt> {
  if (!isReadable) throw refuseUnreadable();
  const outcomes: PartOutcome[] = [];
  for (const part of divide(payload)) {
    const request: IngestRequest = {
      projectId: letter.projectId,
      retentionMs,
      body: Buffer.concat(part.lines),
      format: 'ndjson',
      strict: false,
      batchMax: PART_LINES_MAX,
    };
    outcomes.push(await submitPart(letter.id, part, request, flush));
  }
  const refused = outcomes.flatMap((outcome) => outcome.refused);
  const receipt = addUp(outcomes.map((outcome) => outcome.receipt));
  if (receipt.received === 0) throw refuseAll(receipt);
  if (refused.length === 0) await deadLetters.remove(letter.projectId, letter.id);
  else await deadLetters.keepOnly(letter, { entries: refused.length, payload: Buffer.concat(refused) });
  return receipt;
}

/** The answer for a letter whose entries are lost in a damaged block. */
export function refuseUnreadable(): ApiError {
  return new ApiError('CONFLICT', {
    public:
      'the entries of this letter cannot be read any more: their block was damaged; it can only be deleted (ask the operator, who can look at its bytes)',
  });
}

/** Whole lines, each with its line end. */
function divide(payload: Buffer): Part[] {
  const parts: Part[] = [];
  let part: Part = { lines: [], firstIndex: 0 };
  let bytes = 0;
  let index = 0;
  for (let at = 0; at < payload.length; index += 1) {
    const end = payload.indexOf(0x0a, at);
    const next = end === -1 ? payload.length : end + 1;
    const line = payload.subarray(at, next);
    if (
      part.lines.length > 0 &&
      (part.lines.length >= PART_LINES_MAX || bytes + line.length > PART_BYTES_MAX)
    ) {
      parts.push(part);
      part = { lines: [], firstIndex: index };
      bytes = 0;
    }
    part.lines.push(line);
    bytes += line.length;
    at = next;
  }
  return part.lines.length === 0 ? parts : [...parts, part];
}

async function submitPart(
  letterId: string,
  part: Part,
  request: IngestRequest,
  flush: Pick<IngestFlush, 'submit'>,
): Promise<PartOutcome> {
  const hash = createHash('sha256').update(request.body).digest('hex').slice(0, 32);
  const idempotencyKey = `dead-letter:${letterId}:${hash}`;
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
