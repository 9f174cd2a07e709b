import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { DelayedError, Job, Queue, UnrecoverableError, Worker } from 'bullmq';
import type { JobsOptions } from 'bullmq';
import { askRedis, mapRedisError } from './connect.ts';
import type { RedisClient, RedisSettings } from './connect.ts';
import { makeBackend, openForAdding, openForWorking } from './notification-connection.ts';
import { notificationPrefix } from './notification-group.ts';
import { listTargets, trimNotification, trimRule } from './notification-job.ts';
import type {
  GroupJob,
  NotificationJob,
  Outcome,
  QueuedJob,
  TestDelivery,
  TestJob,
} from './notification-job.ts';
import { RedisScript } from './redis-script.ts';
import type { AlertRuleDocument } from './rule-change.ts';
import { StoreError } from './store-error.ts';

const confirmScript = new RedisScript('notification.lua/confirm.lua');

const QUEUE = 'notifications';
const ATTEMPTS_MAX = 10;
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
const ADD_AT_ONCE = 100;
const TEST_POLL_MS = 150;
/** A close waits so long for what is in hand, less when Redis is away; the rest is done again by whoever takes it up. */
const CLOSE_TIMEOUT_MS = 12_000;
const CLOSE_TIMEOUT_AWAY_MS = 1_000;

/** One and the same for all jobs: the bounds of whichever job ends are applied to all that ended before it. */
const KEPT = {
  removeOnComplete: { age: 86_400, count: 20_000 },
  removeOnFail: { age: 7 * 86_400, count: 5_000 },
} satisfies JobsOptions;

const RETRIED = {
  ...KEPT,
  attempts: ATTEMPTS_MAX,
  backoff: { type: 'custom' },
  stackTraceLimit: 1,
} satisfies JobsOptions;

/** Which attempt this is, from 1; those that a dead worker began are not counted. */
export type Attempt = { number: number; isLast: boolean; addedAtMs: number };

export type WorkOptions = {
  concurrency: number;
  /** What went wrong with the queue itself; the work goes on. */
  onError: (error: Error) => void;
  /** Pause before another attempt in ms; by default 1 s, 3 s, 9 s, … up to 5 min, a quarter more or less. */
  pauseBeforeRetry?: (attemptsMade: number) => number;
};

/**
 * The queue of notifications. A job is done at least once; its id says what it is, so that adding it again changes
 * nothing, while it waits and for a day after it was done (at most 20,000 are remembered).
 */
export class NotificationQueue implements AsyncDisposable {
  readonly #settings: RedisSettings;
  readonly #prefix: string;
  readonly #client: RedisClient;
  readonly #queue: Queue<QueuedJob, TestDelivery | null>;

  private constructor(settings: RedisSettings, client: RedisClient) {
    this.#settings = settings;
    this.#prefix = notificationPrefix(settings.KEY_PREFIX);
    this.#client = client;
    // Its version was checked when the process connected; asked of a cluster, any node answers or does not.
    this.#queue = new Queue(QUEUE, { connection: client, prefix: this.#prefix, skipVersionCheck: true });
    // Each command tells its own failure.
    this.#queue.on('error', () => {});
  }

  /** @throws {StoreError} `unavailable` when Redis does not answer within 60 s. */
  static async open(settings: RedisSettings): Promise<NotificationQueue> {
    const queue = new NotificationQueue(settings, await openForAdding(settings));
    try {
      await queue.#queue.waitUntilReady();
      return queue;
    } catch (error) {
      await queue[Symbol.asyncDispose]();
      throw mapRedisError(error);
    }
  }

  /**
   * Adds notifications; those that are there already stay as they are. Returns when REDIS_WAIT_REPLICAS hold them.
   *
   * @throws {StoreError} `unavailable`: some may have been added; add all of them again.
   */
  async add(jobs: readonly NotificationJob[]): Promise<void> {
    for (let from = 0; from < jobs.length; from += ADD_AT_ONCE) {
      const part = jobs.slice(from, from + ADD_AT_ONCE).map((job) => ({
        name: job.channel,
        data: { kind: 'notification' as const, notification: trimNotification(job) },
        // What has a priority comes after what has none: slow web servers do not hold mails up.
        opts: { ...RETRIED, jobId: job.id, ...(job.channel === 'webhook' && { priority: 1 }) },
      }));
      await askRedis(this.#queue.addBulk(part));
    }
    // Whoever added them forgets them now, and what it forgets may lie on another server than the queue.
    const replicas = this.#settings.REDIS_WAIT_REPLICAS ?? 0;
    if (replicas > 0 && jobs.length > 0) {
      const key = `${this.#prefix}:${QUEUE}:wait`;
      await confirmScript.runReplicated(this.#client, [key], [], replicas);
    }
  }

  /** Adds the mail of a group, due at `atMs`. @throws {StoreError} `unavailable`. */
  async addGroup(job: GroupJob, atMs: number, nowMs: number): Promise<void> {
    const opts = { ...RETRIED, jobId: job.id, delay: Math.max(0, atMs - nowMs) };
    await askRedis(this.#queue.add('group', { kind: 'group', group: job }, opts));
  }

  /**
   * Sends a test notification to every recipient of a rule and waits for the answers. One that has none in time is
   * `failed`.
   *
   * @throws {StoreError} `unavailable` when no notifier took any of them within `timeoutMs`.
   */
  async sendTest(rule: AlertRuleDocument, timeoutMs: number): Promise<TestDelivery[]> {
    const expiresAtMs = Date.now() + timeoutMs;
    const tests = listTargets(rule).map((target): TestJob => ({
      id: `test-${randomUUID()}`,
      rule: trimRule(rule, target),
      ...target,
      expiresAtMs,
    }));
    if (tests.length === 0) return [];
    const added = tests.map((test) => ({
      name: 'test',
      data: { kind: 'test' as const, test },
      opts: { ...KEPT, jobId: test.id, lifo: true },
    }));
    await askRedis(this.#queue.addBulk(added));
    const answers = await Promise.all(
      tests.map(async (test) => this.#awaitTest(test, performance.now() + timeoutMs)),
    );
    if (answers.some((answer) => answer !== undefined)) {
      const answer = `no answer within ${timeoutMs / 1000} s`;
      return tests.map(({ channel, target }, index) => {
        return answers[index] ?? { channel, target, status: 'failed', answer };
      });
    }
    const isTaken = (await Promise.all(tests.map(async ({ id }) => this.#isTaken(id)))).includes(true);
    await this.#removeTests(tests);
    const what = isTaken ? 'the notifier did not finish' : 'no notifier took the test';
    throw new StoreError('redis', 'unavailable', `${what} within ${timeoutMs} ms`);
  }

  async #awaitTest({ id }: TestJob, deadlineMs: number): Promise<TestDelivery | undefined> {
    while (performance.now() < deadlineMs) {
      const job = await askRedis(Job.fromId<QueuedJob, TestDelivery | null>(this.#queue, id));
      if (job?.finishedOn !== undefined) {
        await job.remove().catch(() => {});
        return job.returnvalue ?? undefined;
      }
      await delay(TEST_POLL_MS);
    }
    return undefined;
  }

  async #isTaken(id: string): Promise<boolean> {
    return (await askRedis(Job.fromId(this.#queue, id)))?.processedOn !== undefined;
  }

  /** One that is under way cannot be removed, and says by itself that it is too late. */
  async #removeTests(tests: readonly TestJob[]): Promise<void> {
    await Promise.allSettled(tests.map(async ({ id }) => this.#queue.remove(id)));
  }

  /**
   * Takes jobs until it is disposed, which waits for those in hand, up to 12 s.
   *
   * @param process may throw, which is an attempt that failed.
   * @throws {StoreError} `unavailable` when Redis does not answer within 60 s.
   */
  async work(
    process: (job: QueuedJob, attempt: Attempt) => Promise<Outcome>,
    { concurrency, onError, pauseBeforeRetry = growingPause }: WorkOptions,
  ): Promise<AsyncDisposable> {
    const connections = await openForWorking(this.#settings);
    const worker = new Worker<QueuedJob, TestDelivery | null>(
      QUEUE,
      async (job, token) => settle(job, token, await process(job.data, readAttempt(job))),
      {
        connection: connections.client,
        prefix: this.#prefix,
        concurrency,
        maxStalledCount: STALLED_MAX,
        lockDuration: LOCK_MS,
        stalledInterval: STALLED_INTERVAL_MS,
        runRetryDelay: RECONNECT_PAUSE_MS,
        settings: { backoffStrategy: (attemptsMade) => pauseBeforeRetry(attemptsMade) },
      },
      (name, options) => makeBackend(name, options, connections),
    );
    worker.on('error', onError);
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

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#queue.close().catch(() => {});
    this.#client.disconnect();
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
