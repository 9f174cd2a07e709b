import { setTimeout as delay } from 'node:timers/promises';
import { DelayedError, UnrecoverableError, Worker } from 'bullmq';
import type { Job } from 'bullmq';
import { mapRedisError } from './connect.ts';
import type { RedisSettings } from './connect.ts';
import { makeBackend, openForWorking } from './notification-connection.ts';
import type { Outcome, QueuedJob, TestDelivery } from './notification-job.ts';

/**
 * A job whose worker dies is taken up again, so many times, and within about 10 s: lock, then two looks. The deaths
 * are commonly not the job's fault: a worker that starts takes twenty of them, and with 10 a loop of crashes lost 80
 * of 270 mails (decision 15).
 */
const STALLED_MAX = 1_000;
/** What the queue says of a job that it gives up by itself. */
const STALLED = /stalled/;
const LOCK_MS = 5_000;
const STALLED_INTERVAL_MS = 2_500;
const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 300_000;
const RETRY_FACTOR = 3;
const RECONNECT_PAUSE_MS = 1_000;
/** A close waits so long for what is in hand, less when Redis is away; the rest is done again by whoever takes it up. */
const CLOSE_TIMEOUT_MS = 12_000;
const CLOSE_TIMEOUT_AWAY_MS = 1_000;

/** Which attempt this is, from 1; those that a dead worker began are not counted. */
export type Attempt = { number: number; isLast: boolean; addedAtMs: number };

/** Carries one job out. What it throws is an attempt that failed. */
export type Process = (job: QueuedJob, attempt: Attempt) => Promise<Outcome>;

export type WorkOptions = {
  /** Jobs of one channel at a time; each channel has as many. */
  concurrency: number;
  /** What went wrong with the queue itself; the work goes on. */
  onError: (error: Error) => void;
  /** Pause before another attempt in ms; by default 1 s, 3 s, 9 s, … up to 5 min, a quarter more or less. */
  pauseBeforeRetry?: (attemptsMade: number) => number;
};

/**
 * Takes the jobs of one queue until it is disposed, which waits for those in hand, up to 12 s.
 *
 * @throws {StoreError} `unavailable` when Redis does not answer within 60 s.
 */
export async function startWork(
  queue: { name: string; prefix: string; settings: RedisSettings },
  process: Process,
  { concurrency, onError, pauseBeforeRetry = growingPause }: WorkOptions,
): Promise<AsyncDisposable> {
  const connections = await openForWorking(queue.settings);
  const worker = new Worker<QueuedJob, TestDelivery | null>(
    queue.name,
    async (job, token) => settle(job, token, await process(job.data, readAttempt(job))),
    {
      connection: connections.client,
      prefix: queue.prefix,
      concurrency,
      maxStalledCount: STALLED_MAX,
      lockDuration: LOCK_MS,
      stalledInterval: STALLED_INTERVAL_MS,
      runRetryDelay: RECONNECT_PAUSE_MS,
      settings: { backoffStrategy: (attemptsMade) => pauseBeforeRetry(attemptsMade) },
    },
    (name, options) => makeBackend(name, options, connections),
  );
  // The client's own error carries the command with its arguments, and so a job.
  worker.on('error', (error) => onError(hideArguments(error)));
  worker.on('failed', (job, error) => {
    if (STALLED.test(error.message))
      onError(new Error(`${job?.id ?? 'a job'} was given up`, { cause: error }));
  });
  const working: AsyncDisposable = {
    [Symbol.asyncDispose]: async () => closeWorker(worker, connections, onError),
  };
  try {
    await worker.waitUntilReady();
    return working;
  } catch (error) {
    await working[Symbol.asyncDispose]();
    throw mapRedisError(error);
  }
}

/** Waits for what is in hand, up to 12 s. While Redis is away a connection that is closed may never say so. */
async function closeWorker(
  worker: Worker,
  { client, blocking }: Awaited<ReturnType<typeof openForWorking>>,
  onError: (error: Error) => void,
): Promise<void> {
  const closed = worker.close().then(
    () => true,
    () => true,
  );
  const timeoutMs = client.status === 'ready' ? CLOSE_TIMEOUT_MS : CLOSE_TIMEOUT_AWAY_MS;
  const isClosed = await Promise.race([closed, delay(timeoutMs, false, { ref: false })]);
  client.disconnect();
  blocking.disconnect();
  if (!isClosed) onError(new Error(`notifications were still under way after ${timeoutMs} ms`));
}

function hideArguments(error: Error): Error {
  return new Error(error.message);
}

function readAttempt(job: Job<QueuedJob>): Attempt {
  const number = job.attemptsMade + 1;
  return { number, isLast: number >= (job.opts.attempts ?? 1), addedAtMs: job.timestamp };
}

/** Tells the queue what became of a job. @throws what the queue takes as a failure, or as a new time. */
async function settle(
  job: Job<QueuedJob, TestDelivery | null>,
  token: string | undefined,
  outcome: Outcome,
): Promise<TestDelivery | null> {
  switch (outcome.kind) {
    case 'done':
      return outcome.test ?? null;
    case 'retry':
      throw new Error(outcome.reason);
    case 'failed':
      throw new UnrecoverableError(outcome.reason);
    case 'later':
      await job.moveToDelayed(outcome.atMs, token);
      throw new DelayedError();
  }
}

function growingPause(attemptsMade: number): number {
  const pauseMs = Math.min(RETRY_FIRST_MS * RETRY_FACTOR ** (attemptsMade - 1), RETRY_MAX_MS);
  return Math.round(pauseMs * (0.75 + Math.random() / 2));
}
