import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { Job, Queue } from 'bullmq';
import type { JobsOptions } from 'bullmq';
import { askRedis, mapRedisError } from './connect.ts';
import type { RedisClient, RedisSettings } from './connect.ts';
import { openForAdding } from './notification-connection.ts';
import { notificationPrefix } from './notification-group.ts';
import { listTargets, trimNotification, trimRule } from './notification-job.ts';
import type {
  Channel,
  GroupJob,
  NotificationJob,
  QueuedJob,
  TestDelivery,
  TestJob,
} from './notification-job.ts';
import { NotificationRoom } from './notification-room.ts';
import { startWork } from './notification-work.ts';
import type { Process, WorkOptions } from './notification-work.ts';
import { RedisScript } from './redis-script.ts';
import type { AlertRuleDocument } from './rule-change.ts';
import { StoreError } from './store-error.ts';

const confirmScript = new RedisScript('notification.lua/confirm.lua');

/** Each channel has a queue and workers of its own: web servers that are silent do not hold mails up. */
const QUEUES = { email: 'mails', webhook: 'webhooks' } satisfies Record<Channel, string>;
const CHANNELS = ['email', 'webhook'] as const;
const ATTEMPTS_MAX = 10;
const ADD_AT_ONCE = 100;
const TEST_POLL_MS = 150;

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

type ChannelQueue = Queue<QueuedJob, TestDelivery | null>;

/**
 * The notifications that wait: a queue of mails and one of webhooks. A job is done at least once; its id says what it
 * is, so that adding it again changes nothing, while it waits and for a day after it was done (at most 20,000 of a
 * channel are remembered).
 */
export class NotificationQueue implements AsyncDisposable {
  readonly #settings: RedisSettings;
  readonly #prefix: string;
  readonly #client: RedisClient;
  readonly #queues: Record<Channel, ChannelQueue>;
  readonly #room: NotificationRoom;

  private constructor(settings: RedisSettings, client: RedisClient) {
    this.#settings = settings;
    this.#prefix = notificationPrefix(settings.KEY_PREFIX);
    this.#client = client;
    this.#queues = { email: this.#open(QUEUES.email), webhook: this.#open(QUEUES.webhook) };
    this.#room = new NotificationRoom(client, this.#prefix);
  }

  #open(name: string): ChannelQueue {
    // Its version was checked when the process connected; asked of a cluster, any node answers or does not.
    const options = { connection: this.#client, prefix: this.#prefix, skipVersionCheck: true };
    const queue: ChannelQueue = new Queue(name, options);
    // Each command tells its own failure.
    queue.on('error', () => {});
    return queue;
  }

  /** @throws {StoreError} `unavailable` when Redis does not answer within 60 s. */
  static async open(settings: RedisSettings): Promise<NotificationQueue> {
    const queue = new NotificationQueue(settings, await openForAdding(settings));
    try {
      await Promise.all(CHANNELS.map(async (channel) => queue.#queues[channel].waitUntilReady()));
      return queue;
    } catch (error) {
      await queue[Symbol.asyncDispose]();
      throw mapRedisError(error);
    }
  }

  /**
   * Adds notifications; those that are there already stay as they are. Returns when REDIS_WAIT_REPLICAS hold them.
   *
   * @returns those that were left out, as too many of their project wait (notification-room.ts). They are not sent.
   * @throws {StoreError} `unavailable`: some may have been added; add all of them again.
   */
  async add(jobs: readonly NotificationJob[]): Promise<NotificationJob[]> {
    const leftOut: NotificationJob[] = [];
    for (let from = 0; from < jobs.length; from += ADD_AT_ONCE) {
      const part = jobs.slice(from, from + ADD_AT_ONCE);
      const hasRoom = await this.#room.admit(part, QUEUES, Date.now());
      leftOut.push(...part.filter((_, index) => hasRoom[index] !== true));
      const admitted = Map.groupBy(
        part.filter((_, index) => hasRoom[index] === true),
        ({ channel }) => channel,
      );
      await Promise.all([...admitted].map(async ([channel, own]) => this.#addTo(channel, own)));
    }
    // Whoever added them forgets them now, and what it forgets may lie on another server than the queue.
    const replicas = this.#settings.REDIS_WAIT_REPLICAS ?? 0;
    if (replicas > 0 && jobs.length > 0) {
      const key = `${this.#prefix}:${QUEUES.email}:wait`;
      await confirmScript.runReplicated(this.#client, [key], [], replicas);
    }
    return leftOut;
  }

  async #addTo(channel: Channel, jobs: readonly NotificationJob[]): Promise<void> {
    const added = jobs.map((job) => ({
      name: channel,
      data: { kind: 'notification' as const, notification: trimNotification(job) },
      opts: { ...RETRIED, jobId: job.id },
    }));
    await askRedis(this.#queues[channel].addBulk(added));
  }

  /**
   * Gives back the room of notifications that were sent or given up, themselves or in the mail of a group.
   *
   * @throws {StoreError} `unavailable`; they are forgotten by themselves after two hours.
   */
  async release(channel: Channel, projectId: string, ids: readonly string[]): Promise<void> {
    await this.#room.release(channel, projectId, ids);
  }

  /** Adds the mail of a group, due at `atMs`. @throws {StoreError} `unavailable`. */
  async addGroup(job: GroupJob, atMs: number, nowMs: number): Promise<void> {
    const opts = { ...RETRIED, jobId: job.id, delay: Math.max(0, atMs - nowMs) };
    await askRedis(this.#queues.email.add('group', { kind: 'group', group: job }, opts));
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
    const byChannel = Map.groupBy(tests, ({ channel }) => channel);
    await Promise.all(
      [...byChannel].map(async ([channel, own]) => {
        const added = own.map((test) => ({
          name: 'test',
          data: { kind: 'test' as const, test },
          opts: { ...KEPT, jobId: test.id },
        }));
        await askRedis(this.#queues[channel].addBulk(added));
      }),
    );
    const answers = await Promise.all(
      tests.map(async (test) => this.#awaitTest(test, performance.now() + timeoutMs)),
    );
    if (answers.some((answer) => answer !== undefined)) {
      const answer = `no answer within ${timeoutMs / 1000} s`;
      return tests.map(({ channel, target }, index) => {
        return answers[index] ?? { channel, target, status: 'failed', answer };
      });
    }
    const isTaken = (await Promise.all(tests.map(async (test) => this.#isTaken(test)))).includes(true);
    await this.#removeTests(tests);
    const what = isTaken ? 'the notifier did not finish' : 'no notifier took the test';
    throw new StoreError('redis', 'unavailable', `${what} within ${timeoutMs} ms`);
  }

  async #awaitTest({ id, channel }: TestJob, deadlineMs: number): Promise<TestDelivery | undefined> {
    while (performance.now() < deadlineMs) {
      const job = await askRedis(Job.fromId<QueuedJob, TestDelivery | null>(this.#queues[channel], id));
      if (job?.finishedOn !== undefined) {
        await job.remove().catch(() => {});
        return job.returnvalue ?? undefined;
      }
      await delay(TEST_POLL_MS);
    }
    return undefined;
  }

  async #isTaken({ id, channel }: TestJob): Promise<boolean> {
    return (await askRedis(Job.fromId(this.#queues[channel], id)))?.processedOn !== undefined;
  }

  /** One that is under way cannot be removed, and says by itself that it is too late. */
  async #removeTests(tests: readonly TestJob[]): Promise<void> {
    await Promise.allSettled(tests.map(async ({ id, channel }) => this.#queues[channel].remove(id)));
  }

  /**
   * Takes jobs of both channels until it is disposed, which waits for those in hand, up to 12 s.
   *
   * @throws {StoreError} `unavailable` when Redis does not answer within 60 s.
   */
  async work(process: Process, options: WorkOptions): Promise<AsyncDisposable> {
    const queue = { prefix: this.#prefix, settings: this.#settings };
    const started = await Promise.allSettled(
      CHANNELS.map(async (channel) => startWork({ ...queue, name: QUEUES[channel] }, process, options)),
    );
    const works = started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
    // Together: each may take long.
    const stop = async (): Promise<void> => {
      await Promise.all(works.map(async (work) => work[Symbol.asyncDispose]()));
    };
    const failed = started.find((one) => one.status === 'rejected');
    if (failed === undefined) return { [Symbol.asyncDispose]: stop };
    await stop();
    throw mapRedisError(failed.reason);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled(CHANNELS.map(async (channel) => this.#queues[channel].close()));
    this.#client.disconnect();
  }
}
