import { askRedis } from './connect.ts';
import type { RedisClient } from './connect.ts';
import type { Channel, NotificationJob } from './notification-job.ts';
import { RedisScript } from './redis-script.ts';
import { StoreError } from './store-error.ts';

const admitScript = new RedisScript('notification.lua/admit.lua');

/** Notifications of one project that may wait in a channel, sharing a mail with others included. */
const WAITING_MAX = 2_000;
/** From so many on no reminders ("still firing") are added: the next one says the same. */
const WAITING_REMINDERS_MAX = 500;
/** Jobs of all projects (about 2 KB each) that crowd a queue, and what a project may have waiting there then. */
const CROWD = 10_000;
const WAITING_CROWDED_MAX = 100;
/** One that was never said to be done, as its notifier died, is forgotten then; ten attempts take half an hour. */
const FORGOTTEN_MS = 2 * 3_600_000;

type Asked = Pick<NotificationJob, 'id' | 'channel' | 'firing'>;

/**
 * How much room each project has in the queues of notifications. It is a project's own room, so that one whose rules
 * fire without end, or whose web servers are silent, fills nobody else's.
 */
export class NotificationRoom {
  readonly #client: RedisClient;
  readonly #prefix: string;

  /** @param prefix of the queues' keys (`notificationPrefix`). */
  constructor(client: RedisClient, prefix: string) {
    this.#client = client;
    this.#prefix = prefix;
  }

  /**
   * Finds room for notifications. Those that have it keep it until they are released, for two hours at most.
   *
   * @param queues names of the channels' queues.
   * @returns for each whether there is room; yes as well for one that has it already.
   * @throws {StoreError} `unavailable`.
   */
  async admit(
    jobs: readonly Asked[],
    queues: Readonly<Record<Channel, string>>,
    nowMs: number,
  ): Promise<boolean[]> {
    const groups = Map.groupBy(jobs, ({ channel, firing }) => this.#keyOf(channel, firing.projectId));
    const answers = new Map<Asked, boolean>();
    const admitGroup = async ([key, group]: [string, Asked[]]): Promise<void> => {
      const queue = `${this.#prefix}:${queues[group[0]?.channel ?? 'email']}`;
      const bounds = [WAITING_MAX, WAITING_REMINDERS_MAX, WAITING_CROWDED_MAX, CROWD];
      const asked = group.flatMap(({ id, firing }) => [id, firing.kind === 'renotified' ? 1 : 0]);
      const args = [`${queue}:`, nowMs, FORGOTTEN_MS, ...bounds, ...asked];
      const answer = await admitScript.run(this.#client, [key, `${queue}:wait`, `${queue}:delayed`], args);
      if (!Array.isArray(answer) || answer.length !== group.length) {
        const what = `expected ${group.length} answers of admit.lua, got ${String(answer)}`;
        throw new StoreError('redis', 'unavailable', what);
      }
      for (const [index, job] of group.entries()) answers.set(job, answer[index] === 1);
    };
    await Promise.all([...groups].map(admitGroup));
    return jobs.map((job) => answers.get(job) === true);
  }

  /** These wait no more. @throws {StoreError} `unavailable`. */
  async release(channel: Channel, projectId: string, ids: readonly string[]): Promise<void> {
    if (ids.length > 0) await askRedis(this.#client.zrem(this.#keyOf(channel, projectId), ...ids));
  }

  #keyOf(channel: Channel, projectId: string): string {
    return `${this.#prefix}:waiting:${channel}:${projectId}`;
  }
}
