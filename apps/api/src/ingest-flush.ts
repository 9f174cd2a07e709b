import { BlockEncoder } from '@logpond/log-block/encode';
import type { EncodedBlock } from '@logpond/log-block/encode';
import { readBatch } from '@logpond/log-block/read-batch';
import type { Admission, Idempotency, LogStream } from '@logpond/db/log-stream';
import { passFailpoint } from '@logpond/runtime/failpoint';
import { declareCounter, declareHistogram } from '@logpond/runtime/metrics';
import { ApiError } from '@logpond/schema/api-error';
import { FairQueue } from './fair-queue.ts';
import { IngestDoor, refusedBatches } from './ingest-door.ts';
import { identify, renderReceipt } from './ingest-request.ts';
import type { IngestAnswer, IngestRequest } from './ingest-request.ts';
import { jitterRetryAfter } from './retry-after.ts';

/** One block takes bodies up to this size together; a single larger body gets a block of its own. */
const FLUSH_BODY_BYTES_MAX = 1024 * 1024;
/** The rows that a block's layout can hold. */
const FLUSH_ROWS_MAX = 65_535;
/** The admit script gets a share of the block for each of its projects; Lua takes up to about 8,000 arguments. */
const FLUSH_PROJECTS_MAX = 1_000;
/**
 * Bodies of a lane whose blocks are on their way to Redis. More of them would only queue up in its connection,
 * where a project's turn counts for nothing.
 */
const SENT_BYTES_MAX = 4 * 1024 * 1024;
/** A batch that has waited this long for its turn is given back: its client will not wait for ever. */
const TURN_WAIT_MS_MAX = 5_000;
/** How long a stream that said it is under pressure is taken to be so. */
const PRESSURE_MS = 5_000;

type Waiting = {
  request: IngestRequest;
  receivedAtMs: number;
  /** By the clock that never jumps. */
  queuedAtMs: number;
  resolve: (answer: IngestAnswer) => void;
  reject: (error: unknown) => void;
};

type Lane = {
  shard: number;
  encoder: BlockEncoder;
  waiting: FairQueue<Waiting>;
  isScheduled: boolean;
  /** Bodies whose blocks were sent and are not answered. */
  sentBytes: number;
};
type Accepted = { waiting: Waiting; receipt: string };

/**
 * Gathers the batches of one turn of the event loop into one block a shard, the projects in turn, and answers each
 * request once its block is on disk. A request with an Idempotency-Key gets a block of its own.
 */
export class IngestFlush implements AsyncDisposable {
  readonly #stream: LogStream;
  readonly #now: () => number;
  readonly #lanes: Lane[];
  readonly #inFlight = new Set<Promise<void>>();
  readonly #door = new IngestDoor();
  /** The Idempotency-Keys of the requests in hand, each behind its project. */
  readonly #keysInHand = new Set<string>();
  #pressedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: { stream: LogStream; now: () => number }) {
    this.#stream = options.stream;
    this.#now = options.now;
    this.#lanes = Array.from({ length: options.stream.shards }, (_, shard) => ({
      shard,
      encoder: new BlockEncoder(),
      waiting: new FairQueue<Waiting>(),
      isScheduled: false,
      sentBytes: 0,
    }));
  }

  /** Whether a stream said within the last 5 s that it is filling up: expensive searches are refused meanwhile. */
  get isPressed(): boolean {
    return performance.now() - this.#pressedAtMs < PRESSURE_MS;
  }

  /**
   * Before the body of a project's request is read.
   *
   * @throws {ApiError} BACKPRESSURE while too much of the project waits to be stored.
   */
  checkRoom(projectId: string): void {
    this.#door.check(projectId);
  }

  /**
   * Validates a batch and stores it.
   *
   * @throws {ApiError} INVALID_JSON, VALIDATION_ERROR, BATCH_TOO_LARGE, IDEMPOTENCY_MISMATCH: nothing was
   * stored; CONFLICT: the first request with this key is in hand; BACKPRESSURE, UNAVAILABLE: nothing was stored,
   * send again later.
   * @throws {StoreError} `unavailable`: not confirmed, send again.
   */
  async submit(request: IngestRequest): Promise<IngestAnswer> {
    const { projectId, idempotencyKey } = request;
    if (idempotencyKey === undefined) return this.#enqueue(request);
    const key = `${projectId} ${idempotencyKey}`;
    if (this.#keysInHand.has(key)) {
      refusedBatches.inc({ reason: 'CONFLICT' });
      throw new ApiError('CONFLICT', {
        public: 'the first request with this Idempotency-Key is still running; send again',
        retryAfterS: 1,
      });
    }
    this.#keysInHand.add(key);
    return this.#enqueue(request).finally(() => this.#keysInHand.delete(key));
  }

  async #enqueue(request: IngestRequest): Promise<IngestAnswer> {
    const { projectId, body } = request;
    const lane = this.#lanes[this.#stream.shardOf(projectId)];
    if (lane === undefined) throw new RangeError('expected a lane for every shard');
    this.#door.enter(projectId, body.length);
    const { promise, resolve, reject } = Promise.withResolvers<IngestAnswer>();
    const queuedAtMs = performance.now();
    lane.waiting.push(projectId, { request, receivedAtMs: this.#now(), queuedAtMs, resolve, reject });
    this.#schedule(lane);
    return promise.finally(() => this.#door.leave(projectId, body.length));
  }

  #schedule(lane: Lane): void {
    if (lane.isScheduled || lane.waiting.isEmpty || lane.sentBytes >= SENT_BYTES_MAX) return;
    lane.isScheduled = true;
    setImmediate(() => {
      lane.isScheduled = false;
      this.#flush(lane);
      this.#schedule(lane);
    });
  }

  /** Encodes what waits, up to the bounds of a block; the rest has its turn after other work. */
  #flush(lane: Lane): void {
    const accepted: Accepted[] = [];
    const projects = new Set<string>();
    let bodyBytes = 0;
    for (let next = lane.waiting.peek(); next !== undefined; next = lane.waiting.peek()) {
      const { projectId, body, batchMax, idempotencyKey } = next.request;
      const isFull =
        bodyBytes + body.length > FLUSH_BODY_BYTES_MAX ||
        lane.encoder.rows + batchMax > FLUSH_ROWS_MAX ||
        (projects.size >= FLUSH_PROJECTS_MAX && !projects.has(projectId));
      if (bodyBytes > 0 && (isFull || idempotencyKey !== undefined)) break;
      lane.waiting.shift();
      if (giveBackLate(next)) continue;
      bodyBytes += body.length;
      projects.add(projectId);
      const receipt = this.#encode(lane, next);
      if (receipt !== undefined) accepted.push({ waiting: next, receipt });
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
    const bytes = accepted.reduce((sum, { waiting }) => sum + waiting.request.body.length, 0);
    lane.sentBytes += bytes;
    const sent = this.#admit(lane, accepted)
      .catch((error: unknown) => {
        for (const { waiting } of accepted) waiting.reject(error);
      })
      .then(() => {
        lane.sentBytes -= bytes;
        this.#schedule(lane);
      });
    this.#track(sent);
  }

  #track(work: Promise<void>): void {
    this.#inFlight.add(work);
    void work.finally(() => this.#inFlight.delete(work));
  }

  async #admit(lane: Lane, accepted: readonly Accepted[]): Promise<void> {
    const encoded = finishBlock(lane, this.#now());
    const startedAt = performance.now();
    passFailpoint('A3.before');
    const admission = await this.#stream.admit(lane.shard, encoded, findIdempotency(accepted));
    // Script and WAIT are answered together: A3.after would be this same instant.
    passFailpoint('A4.after');
    admitSeconds.observe((performance.now() - startedAt) / 1_000);
    this.#learn(accepted, admission);
    passFailpoint('A5.before');
    settle(accepted, admission);
  }

  #learn(accepted: readonly Accepted[], admission: Admission): void {
    if (admission.kind === 'full') this.#pressedAtMs = performance.now();
    if (admission.kind !== 'stored') return;
    if (admission.isPressed) this.#pressedAtMs = performance.now();
    this.#door.learn(new Set(accepted.map(({ waiting }) => waiting.request.projectId)), admission.crowded);
  }

  /** Waits until every batch in hand is answered; nothing may be submitted any more. */
  async [Symbol.asyncDispose](): Promise<void> {
    while (this.#inFlight.size > 0 || this.#lanes.some((lane) => lane.isScheduled || !lane.waiting.isEmpty)) {
      await Promise.all(this.#inFlight);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

/** A batch that has waited too long is refused before it is encoded. */
function giveBackLate({ queuedAtMs, reject }: Waiting): boolean {
  if (performance.now() - queuedAtMs <= TURN_WAIT_MS_MAX) return false;
  refusedBatches.inc({ reason: 'waiting_time' });
  reject(
    new ApiError('UNAVAILABLE', {
      public: 'the batch waited too long to be written; nothing of it is stored, send again',
      retryAfterS: jitterRetryAfter(1.5),
    }),
  );
  return true;
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
      // An error of its own for each: their times to come back must differ.
      for (const { waiting } of accepted) waiting.reject(refuseFull(admission.retryAfterS));
      return;
  }
}

function refuseFull(retryAfterS: number): ApiError {
  refusedBatches.inc({ reason: 'budget' });
  return new ApiError('UNAVAILABLE', {
    public: 'too much waits to be stored; send again',
    retryAfterS: jitterRetryAfter(retryAfterS),
  });
}

/** A keyed request is alone in its block. */
function findIdempotency(accepted: readonly Accepted[]): Idempotency | undefined {
  const [first] = accepted;
  if (first?.waiting.request.idempotencyKey === undefined) return undefined;
  return { ...identify(first.waiting.request), receipt: first.receipt };
}

const acceptedEntries = declareCounter('logpond_api_accepted_entries_total', {
  help: 'Entries that passed validation and were put into a block',
});
const rejectedEntries = declareCounter('logpond_api_rejected_entries_total', {
  help: 'Entries that validation refused while others of their batch were accepted',
});
const admitSeconds = declareHistogram('logpond_api_admit_seconds', {
  help: 'From the finished block to Redis’ answer',
});
