import { createHash } from 'node:crypto';
import { BlockEncoder } from '@logpond/log-block/encode';
import type { EncodedBlock } from '@logpond/log-block/encode';
import { readBatch } from '@logpond/log-block/read-batch';
import type { BatchOutcome } from '@logpond/log-block/read-batch';
import type { Admission, Idempotency, LogStream } from '@logpond/db/log-stream';
import { declareCounter, declareGauge, declareHistogram } from '@logpond/runtime/metrics';
import { ApiError } from '@logpond/schema/api-error';

/** One block takes bodies up to this size together; a single larger body gets a block of its own. */
const FLUSH_BODY_BYTES_MAX = 4 * 1024 * 1024;
/** The rows that a block's layout can hold. */
const FLUSH_ROWS_MAX = 65_535;
/** Bodies that wait for their answer, in this process; beyond it Redis is not keeping up. */
const WAITING_BYTES_MAX = 128 * 1024 * 1024;
const RETRY_AFTER_S = 1;

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

type Waiting = {
  request: IngestRequest;
  receivedAtMs: number;
  resolve: (answer: IngestAnswer) => void;
  reject: (error: unknown) => void;
};

type Lane = { shard: number; encoder: BlockEncoder; waiting: Waiting[]; isScheduled: boolean };
type Accepted = { waiting: Waiting; receipt: string };

/**
 * Gathers the batches of one turn of the event loop into one block a shard, and answers each request once
 * its block is on disk. A request with an Idempotency-Key gets a block of its own.
 */
export class IngestFlush implements AsyncDisposable {
  readonly #stream: LogStream;
  readonly #now: () => number;
  readonly #lanes: Lane[];
  readonly #inFlight = new Set<Promise<void>>();
  #waitingBytes = 0;

  constructor(options: { stream: LogStream; now: () => number }) {
    this.#stream = options.stream;
    this.#now = options.now;
    this.#lanes = Array.from({ length: options.stream.shards }, (_, shard) => ({
      shard,
      encoder: new BlockEncoder(),
      waiting: [],
      isScheduled: false,
    }));
  }

  /**
   * Validates a batch and stores it.
   *
   * @throws {ApiError} INVALID_JSON, VALIDATION_ERROR, BATCH_TOO_LARGE, IDEMPOTENCY_MISMATCH: nothing was
   * stored; UNAVAILABLE: nothing was stored, send again later.
   * @throws {StoreError} `unavailable`: not confirmed, send again.
   */
  async submit(request: IngestRequest): Promise<IngestAnswer> {
    if (this.#waitingBytes + request.body.length > WAITING_BYTES_MAX) {
      refusedBatches.inc({ reason: 'waiting_bytes' });
      throw new ApiError('UNAVAILABLE', {
        public: 'too much waits to be written; send again',
        retryAfterS: RETRY_AFTER_S,
      });
    }
    const lane = this.#lanes[this.#stream.shardOf(request.projectId)];
    if (lane === undefined) throw new RangeError('expected a lane for every shard');
    const { promise, resolve, reject } = Promise.withResolvers<IngestAnswer>();
    lane.waiting.push({ request, receivedAtMs: this.#now(), resolve, reject });
    this.#waitingBytes += request.body.length;
    this.#schedule(lane);
    try {
      return await promise;
    } finally {
      this.#waitingBytes -= request.body.length;
      waitingBytes.set(this.#waitingBytes);
    }
  }

  #schedule(lane: Lane): void {
    if (lane.isScheduled) return;
    lane.isScheduled = true;
    setImmediate(() => {
      lane.isScheduled = false;
      this.#flush(lane);
      if (lane.waiting.length > 0) this.#schedule(lane);
    });
  }

  /** Encodes what waits, up to the bounds of a block; the rest has its turn after other work. */
  #flush(lane: Lane): void {
    const accepted: Accepted[] = [];
    let bodyBytes = 0;
    while (lane.waiting.length > 0) {
      const waiting = lane.waiting[0];
      if (waiting === undefined) break;
      const { body, batchMax, idempotencyKey } = waiting.request;
      const isFull =
        bodyBytes + body.length > FLUSH_BODY_BYTES_MAX || lane.encoder.rows + batchMax > FLUSH_ROWS_MAX;
      if (bodyBytes > 0 && (isFull || idempotencyKey !== undefined)) break;
      lane.waiting.shift();
      bodyBytes += body.length;
      const receipt = this.#encode(lane, waiting);
      if (receipt !== undefined) accepted.push({ waiting, receipt });
      if (idempotencyKey !== undefined) break;
    }
    if (accepted.length > 0) this.#send(lane, accepted);
  }

  /** Puts a batch into the block; a batch that is refused leaves no trace in it. */
  #encode(lane: Lane, waiting: Waiting): string | undefined {
    const { request, receivedAtMs, reject } = waiting;
    try {
      const { body, format, projectId, retentionMs, batchMax, strict } = request;
      const options = { format, projectId, retentionMs, batchMax, strict, nowMs: receivedAtMs };
      const outcome = readBatch(body, options, lane.encoder);
      acceptedEntries.inc(outcome.accepted);
      rejectedEntries.inc(outcome.rejectedCount);
      return renderReceipt(outcome, receivedAtMs);
    } catch (error) {
      refusedBatches.inc({ reason: error instanceof ApiError ? error.code : 'bug' });
      if (request.idempotencyKey === undefined) reject(error);
      else this.#track(this.#refuseKeyed(lane, waiting, error).catch(reject));
      return undefined;
    }
  }

  /** A batch that is refused now may have been accepted before (its times have left the window meanwhile, say). */
  async #refuseKeyed(lane: Lane, waiting: Waiting, refusal: unknown): Promise<void> {
    const admission = await this.#stream.recall(lane.shard, identify(waiting.request));
    if (admission === undefined) throw refusal;
    settle([{ waiting, receipt: '' }], admission);
  }

  #send(lane: Lane, accepted: readonly Accepted[]): void {
    this.#track(
      this.#admit(lane, accepted).catch((error: unknown) => {
        for (const { waiting } of accepted) waiting.reject(error);
      }),
    );
  }

  #track(work: Promise<void>): void {
    this.#inFlight.add(work);
    void work.finally(() => this.#inFlight.delete(work));
  }

  async #admit(lane: Lane, accepted: readonly Accepted[]): Promise<void> {
    const encoded = finishBlock(lane, this.#now());
    const startedAt = performance.now();
    const admission = await this.#stream.admit(lane.shard, encoded, findIdempotency(accepted));
    admitSeconds.observe((performance.now() - startedAt) / 1_000);
    settle(accepted, admission);
  }

  /** Waits until every batch in hand is answered; nothing may be submitted any more. */
  async [Symbol.asyncDispose](): Promise<void> {
    while (this.#inFlight.size > 0 || this.#lanes.some((lane) => lane.isScheduled)) {
      await Promise.all(this.#inFlight);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

/** Runs in a timer of nobody's: a block that cannot be finished fails its requests, and the next one starts empty. */
function finishBlock(lane: Lane, nowMs: number): EncodedBlock {
  try {
    return lane.encoder.finish(nowMs);
  } catch (error) {
    lane.encoder = new BlockEncoder();
    throw error;
  }
}

/** Answers the requests of one block. @throws {ApiError} when they are refused. */
function settle(accepted: readonly Accepted[], admission: Admission): void {
  switch (admission.kind) {
    case 'stored':
      for (const { waiting, receipt } of accepted) waiting.resolve({ receiptJson: receipt, replayed: false });
      return;
    case 'replayed':
      for (const { waiting } of accepted) waiting.resolve({ receiptJson: admission.receipt, replayed: true });
      return;
    case 'mismatch':
      throw new ApiError('IDEMPOTENCY_MISMATCH', {
        public: 'expected the body that was first sent with this Idempotency-Key, got another one',
      });
    case 'full':
      refusedBatches.inc({ reason: 'budget' });
      throw new ApiError('UNAVAILABLE', {
        public: 'too much waits to be stored; send again',
        retryAfterS: RETRY_AFTER_S,
      });
  }
}

/** A keyed request is alone in its block. */
function findIdempotency(accepted: readonly Accepted[]): Idempotency | undefined {
  const [first] = accepted;
  if (first?.waiting.request.idempotencyKey === undefined) return undefined;
  return { ...identify(first.waiting.request), receipt: first.receipt };
}

function identify({ projectId, idempotencyKey = '', body }: IngestRequest): Omit<Idempotency, 'receipt'> {
  return { projectId, key: idempotencyKey, bodyHash: createHash('sha256').update(body).digest('hex') };
}

function renderReceipt(outcome: BatchOutcome, nowMs: number): string {
  const receipt = { received: outcome.accepted, timestamp: new Date(nowMs).toISOString() };
  if (outcome.rejectedCount === 0) return JSON.stringify(receipt);
  const rejected = outcome.rejected.map(({ index, code, message }) => ({ index, code, message }));
  return JSON.stringify({ ...receipt, rejected, rejectedCount: outcome.rejectedCount });
}

const acceptedEntries = declareCounter('logpond_api_accepted_entries_total', {
  help: 'Entries that passed validation and were put into a block',
});
const rejectedEntries = declareCounter('logpond_api_rejected_entries_total', {
  help: 'Entries that validation refused while others of their batch were accepted',
});
const refusedBatches = declareCounter('logpond_api_refused_batches_total', {
  help: 'Batches of which nothing was stored',
  labels: ['reason'],
});
const waitingBytes = declareGauge('logpond_api_waiting_bytes', { help: 'Bodies that wait for their answer' });
const admitSeconds = declareHistogram('logpond_api_admit_seconds', {
  help: 'From the finished block to Redis’ answer',
});
