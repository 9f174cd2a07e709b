import { randomUUID } from 'node:crypto';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { ApiAnswer, ErrorAnswer } from './api-request.ts';
import { isRetryable, NetworkError, parseObject, readError, requestApi, toRefusal } from './api-request.ts';
import { nextDelayMs, pause } from './back-off.ts';
import { CliError, EXIT } from './cli-error.ts';
import type { Connection } from './config.ts';
import type { OutgoingEntry } from './outgoing-entry.ts';
import type { TimeWindow } from './time-window.ts';
import { redate } from './time-window.ts';

const REQUEST_TIMEOUT_MS = 30_000;
const GZIP_BYTES_MIN = 1024;
const FIRST_CONTACT_MS = 10_000;

const gzipAsync = promisify(gzip);

type SendCounts = { sent: number; rejected: number; retried: number; redated: number };

/** What all deliveries of one run share. `retryForMs` must stay below the hour for which a key is remembered. */
export type DeliveryContext = {
  readonly connection: Connection;
  readonly window: TimeWindow;
  readonly counts: SendCounts;
  readonly retryForMs: number;
  /** Reject entries outside the accepted range of times instead of re-dating them. */
  readonly keepsTime: boolean;
  readonly signal: AbortSignal;
  readonly reportReason: (reason: string) => void;
  hasContact: boolean;
};

/**
 * Posts entries until each is stored or refused for good, and counts them. The batch is posted
 * strictly (all or nothing), so a refusal is repaired (time) or left out (anything else) and the rest
 * posted anew under a fresh Idempotency-Key; each round settles at least one entry, so it ends.
 * Throws CliError when the service cannot be reached, does not take the key, or fails for too long.
 */
export async function deliverBatch(entries: OutgoingEntry[], context: DeliveryContext): Promise<void> {
  let pending = entries;
  while (pending.length > 0) {
    pending = settleOutside(pending, context);
    if (pending.length === 0) return;
    const answer = await postUntilAnswered(pending, context);
    if (answer.status === 200) return countReceipt(answer, pending.length, context);
    const refusal = readError(answer);
    if (answer.status === 413 || refusal.code === 'BATCH_TOO_LARGE')
      return deliverHalves(pending, refusal, context);
    if (answer.status !== 400 && answer.status !== 422) throw toRefusal(context.connection, answer);
    pending = settleRefused(pending, refusal, context);
  }
}

/** Posts the same bytes under the same key until there is an answer that a retry would not change. */
async function postUntilAnswered(
  entries: readonly OutgoingEntry[],
  context: DeliveryContext,
): Promise<ApiAnswer> {
  const plain = Buffer.from(JSON.stringify({ logs: entries }));
  const isPacked = plain.length >= GZIP_BYTES_MIN;
  const body = Uint8Array.from(isPacked ? await gzipAsync(plain, { level: 1 }) : plain);
  const headers: Record<string, string> = {
    'Content-Type': 'application/json',
    'Idempotency-Key': randomUUID(),
    Prefer: 'handling=strict',
  };
  if (isPacked) headers['Content-Encoding'] = 'gzip';
  const startedMs = Date.now();
  for (let attempt = 0; ; attempt++) {
    const outcome = await tryPost(context, headers, body);
    if (!(outcome instanceof Error) && !isRetryable(outcome.status)) return outcome;
    const delayMs = nextDelayMs(attempt, outcome instanceof Error ? undefined : outcome.retryAfterMs);
    throwWhenHopeless(outcome, Date.now() + delayMs - startedMs, context);
    await pause(delayMs, context.signal);
    context.counts.retried++;
  }
}

async function tryPost(
  context: DeliveryContext,
  headers: Record<string, string>,
  body: Uint8Array<ArrayBuffer>,
): Promise<ApiAnswer | NetworkError> {
  const { connection, signal } = context;
  try {
    const answer = await requestApi(connection, {
      method: 'POST',
      path: '/ingest',
      headers,
      body,
      timeoutMs: REQUEST_TIMEOUT_MS,
      signal,
    });
    context.hasContact = true;
    return answer;
  } catch (error) {
    if (error instanceof NetworkError) return error;
    throw error;
  }
}

function throwWhenHopeless(
  outcome: ApiAnswer | NetworkError,
  elapsedMs: number,
  context: DeliveryContext,
): void {
  if (outcome instanceof NetworkError) {
    // An address that never answered is more likely wrong than restarting.
    if (!context.hasContact && elapsedMs > Math.min(FIRST_CONTACT_MS, context.retryForMs)) throw outcome;
    if (elapsedMs > context.retryForMs)
      throw new CliError(EXIT.incomplete, outcome.message, { cause: outcome });
  } else if (elapsedMs > context.retryForMs) {
    throw new CliError(
      EXIT.incomplete,
      `gave up retrying: ${toRefusal(context.connection, outcome).message}`,
    );
  }
}

function countReceipt(answer: ApiAnswer, count: number, context: DeliveryContext): void {
  const receipt = parseObject(answer.body);
  const received = receipt['received'];
  if (typeof received !== 'number') {
    throw new CliError(
      EXIT.unreachable,
      `${context.connection.baseUrl} answered 200 without a receipt: is it Logpond?`,
    );
  }
  context.counts.sent += received;
  context.counts.rejected += count - received;
  for (const item of Array.isArray(receipt['rejected'])
    ? (receipt['rejected'] as { message?: unknown }[])
    : []) {
    context.reportReason(String(item.message));
  }
}

async function deliverHalves(
  pending: OutgoingEntry[],
  refusal: ErrorAnswer,
  context: DeliveryContext,
): Promise<void> {
  if (pending.length === 1) {
    context.counts.rejected++;
    return context.reportReason(refusal.error);
  }
  const middle = Math.ceil(pending.length / 2);
  await deliverBatch(pending.slice(0, middle), context);
  await deliverBatch(pending.slice(middle), context);
}

/** Re-dates or drops what is known to be refused for its time, without asking. */
function settleOutside(pending: OutgoingEntry[], context: DeliveryContext): OutgoingEntry[] {
  const outside = new Set(pending.filter((entry) => context.window.isOutside(entry)));
  if (outside.size === 0) return pending;
  if (context.keepsTime) {
    context.counts.rejected += outside.size;
    return pending.filter((entry) => !outside.has(entry));
  }
  for (const entry of outside) redateCounted(entry, context);
  return pending;
}

/** Re-dates or drops the entries that the refusal lists; returns those to post again. */
function settleRefused(
  pending: OutgoingEntry[],
  refusal: ErrorAnswer,
  context: DeliveryContext,
): OutgoingEntry[] {
  const dropped = new Set<OutgoingEntry>();
  for (const { index, path, message } of refusal.details) {
    const entry = index === undefined ? undefined : pending[index];
    if (!entry) continue;
    const isTime = /(^|\W)(time|timestamp)$/.test(path) && entry.time !== undefined;
    if (isTime) context.window.learn(message);
    if (isTime && !context.keepsTime) {
      redateCounted(entry, context);
    } else {
      dropped.add(entry);
      context.reportReason(`${path}: ${message}`);
    }
  }
  // A refusal that names no entry concerns all of them.
  const isSettled = refusal.details.some(({ index }) => index !== undefined && pending[index] !== undefined);
  if (!isSettled) {
    context.counts.rejected += pending.length;
    context.reportReason(refusal.error);
    return [];
  }
  context.counts.rejected += dropped.size;
  return dropped.size === 0 ? pending : pending.filter((entry) => !dropped.has(entry));
}

function redateCounted(entry: OutgoingEntry, context: DeliveryContext): void {
  redate(entry);
  context.counts.redated++;
}
