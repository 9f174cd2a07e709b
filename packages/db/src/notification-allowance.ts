import { hash } from 'node:crypto';
import { askRedis } from './connect.ts';
import type { RedisStore } from './connect.ts';
import { notificationPrefix } from './notification-group.ts';
import type { NotificationJob } from './notification-job.ts';
import { RedisScript } from './redis-script.ts';

const spendScript = new RedisScript('notification.lua/spend.lua');

const DAY_MS = 86_400_000;
/** Longer than a mail is tried: ten attempts take half an hour at most. */
const REMEMBERED_MS = 3_600_000;

type Bound = 'recipient' | 'project';
type Mail = Pick<NotificationJob, 'id' | 'target'> & { projectId: string };

/** How many mails a project may send in a day (UTC), to one recipient and in all: addresses belong to anybody. */
export class MailAllowance {
  readonly #redis: RedisStore;
  readonly #perRecipient: number;
  readonly #perProject: number;

  constructor(redis: RedisStore, bounds: { perRecipient: number; perProject: number }) {
    this.#redis = redis;
    this.#perRecipient = bounds.perRecipient;
    this.#perProject = bounds.perProject;
  }

  /**
   * What `spend` would say now; counts nothing.
   *
   * @throws {StoreError} `unavailable`.
   */
  async check({ id, projectId, target }: Mail, nowMs: number): Promise<'ok' | Bound> {
    const { client } = this.#redis;
    const key = this.#keyOf(projectId, nowMs);
    const [toRecipient, ofProject] = await askRedis(client.hmget(key, nameOf(target), 'all'));
    const isRecipientFull = Number(toRecipient ?? 0) >= this.#perRecipient;
    if (!isRecipientFull && Number(ofProject ?? 0) < this.#perProject) return 'ok';
    if ((await askRedis(client.exists(this.#counted(id)))) === 1) return 'ok';
    return isRecipientFull ? 'recipient' : 'project';
  }

  /**
   * Takes one mail from what is left; each further attempt at the same mail is free for an hour.
   *
   * @throws {StoreError} `unavailable`.
   */
  async spend({ id, projectId, target }: Mail, nowMs: number): Promise<'ok' | Bound> {
    const keys = [this.#keyOf(projectId, nowMs), this.#counted(id)];
    const args = [nameOf(target), this.#perRecipient, this.#perProject, 2 * DAY_MS, REMEMBERED_MS];
    const answer = await spendScript.run(this.#redis.client, keys, args);
    return answer === 'recipient' || answer === 'project' ? answer : 'ok';
  }

  /** What a user is told who reached a bound. */
  explain(bound: Bound): string {
    return bound === 'recipient'
      ? `expected at most ${this.#perRecipient} mails a day from a project to one recipient`
      : `expected at most ${this.#perProject} mails a day from a project`;
  }

  #counted(id: string): string {
    return `${notificationPrefix(this.#redis.prefix)}:mail-counted:${id}`;
  }

  #keyOf(projectId: string, nowMs: number): string {
    return `${notificationPrefix(this.#redis.prefix)}:mailed:${Math.floor(nowMs / DAY_MS)}:${projectId}`;
  }
}

function nameOf(target: string): string {
  return `to:${hash('sha256', target.toLowerCase(), 'hex').slice(0, 16)}`;
}
