import { createHash } from 'node:crypto';
import type { Idempotency } from '@logpond/db/log-stream';
import type { BatchOutcome } from '@logpond/log-block/read-batch';

/** One request's batch, inflated. */
export type IngestRequest = {
  projectId: string;
  retentionMs: number;
  body: Buffer;
  format: 'json' | 'ndjson';
  /** One bad entry refuses the whole batch. */
  strict: boolean;
  /** Entries that one batch may hold. */
  batchMax: number;
  /** As the client sent it. */
  idempotencyKey?: string;
};

/** The answer to a batch, as JSON text, so that a repetition gets the same bytes. */
export type IngestAnswer = { receiptJson: string; replayed: boolean };

/** What a request with an Idempotency-Key is remembered by; the body as it is after inflating. */
export function identify({
  projectId,
  idempotencyKey = '',
  body,
}: IngestRequest): Omit<Idempotency, 'receipt'> {
  return { projectId, key: idempotencyKey, bodyHash: createHash('sha256').update(body).digest('hex') };
}

/** The answer to a batch, as JSON text. @param nowMs when it was received. */
export function renderReceipt(outcome: BatchOutcome, nowMs: number): string {
  const receipt = { received: outcome.accepted, timestamp: new Date(nowMs).toISOString() };
  if (outcome.rejectedCount === 0) return JSON.stringify(receipt);
  const rejected = outcome.rejected.map(({ index, code, message }) => ({ index, code, message }));
  return JSON.stringify({ ...receipt, rejected, rejectedCount: outcome.rejectedCount });
}
