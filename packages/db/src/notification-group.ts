import { hash } from 'node:crypto';
import type { OutboxItem } from './alert-windows.ts';
import type { RedisStore } from './connect.ts';
import type { GroupJob, NotificationJob } from './notification-job.ts';
import { RedisScript } from './redis-script.ts';
import { StoreError } from './store-error.ts';

const claimScript = new RedisScript('notification.lua/claim.lua');
const closeScript = new RedisScript('notification.lua/close.lua');
const finishScript = new RedisScript('notification.lua/finish.lua');

/** At most one mail per recipient and rule in this time. */
const MAIL_INTERVAL_MS = 60_000;
/** Longer than the longest pause between two attempts, so that a mail that is tried again keeps its place. */
const HOLD_MS = 7 * 60_000;
/** How long a batch waits for its mail when no notifier runs. */
const KEPT_MS = 25 * 3_600_000;
/** What is decided or sent is asked for again only by a job whose end was lost; its ten attempts take half an hour. */
const DECIDED_MS = 3_600_000;
const LOOK_AGAIN_MS = 10_000;

/** A notification inside a group, as its mail tells of it. */
export type GroupItem = { id: string; firing: Omit<OutboxItem, 'rule'> };

/** First part of the queue's keys, with a hash tag: they must all be on one node of a cluster. */
export function notificationPrefix(keyPrefix: string): string {
  return `{${keyPrefix}-notify}`;
}

/**
 * Decides which notifications of one rule to one recipient share a mail, so that there is at most one a minute: the
 * first goes at once; what comes within a minute of it, or while it cannot be sent, goes together in the next.
 *
 * The states of a group: free -> (claim) a mail under way -> (finish) resting for a minute -> free. While it is not
 * free, or a batch is open, claims join the open batch; `close` of a batch makes it the mail under way. Decisions are
 * kept for an hour, so a job that is carried out again after a crash, at any point, does the same again.
 */
export class NotificationGroups {
  readonly #redis: RedisStore;
  readonly #intervalMs: number;

  constructor(redis: RedisStore, options: { intervalMs?: number } = {}) {
    this.#redis = redis;
    this.#intervalMs = options.intervalMs ?? MAIL_INTERVAL_MS;
  }

  /**
   * Whether this notification is a mail of its own, now, or belongs to a group's mail at `atMs`.
   *
   * @throws {StoreError} `unavailable`.
   */
  async claim(
    job: NotificationJob,
    nowMs: number,
  ): Promise<{ kind: 'send' } | { kind: 'join'; group: GroupJob['group']; atMs: number }> {
    const key = this.#keyOf(job);
    const { rule: _rule, ...firing } = job.firing;
    const item: GroupItem = { id: job.id, firing };
    const decision = `${notificationPrefix(this.#redis.prefix)}:decision:${job.id}`;
    const args = [job.id, JSON.stringify(item), nowMs, this.#intervalMs, HOLD_MS, KEPT_MS, DECIDED_MS];
    const answer = asArray(await claimScript.run(this.#redis.client, [key, decision], args));
    if (answer[0] === 'send') return { kind: 'send' };
    return { kind: 'join', group: { key, batch: Number(answer[1]) }, atMs: Number(answer[2]) };
  }

  /**
   * What the mail of a group holds, for ever the same once it was returned, in order of time; `wait` when it is not
   * due yet. Nothing: it was sent long ago.
   *
   * @throws {StoreError} `unavailable`.
   */
  async close(
    job: Pick<GroupJob, 'id' | 'group'>,
    nowMs: number,
  ): Promise<{ kind: 'wait'; atMs: number } | { kind: 'send'; items: GroupItem[] }> {
    const { key, batch } = job.group;
    const lookAgainMs = Math.min(LOOK_AGAIN_MS, this.#intervalMs);
    const args = [batch, job.id, nowMs, this.#intervalMs, HOLD_MS, KEPT_MS, lookAgainMs];
    const [kind, ...rest] = asArray(await closeScript.run(this.#redis.client, [key], args));
    if (kind === 'wait') return { kind, atMs: Number(rest[0]) };
    const items = rest.map((text) => JSON.parse(String(text)) as GroupItem);
    const inOrder = items.toSorted((a, b) => a.firing.atMs - b.firing.atMs || (a.id < b.id ? -1 : 1));
    return { kind: 'send', items: inOrder };
  }

  /**
   * The mail of this job was sent, or given up.
   *
   * @param batch that it held; 0 when it was a mail of its own.
   * @throws {StoreError} `unavailable`.
   */
  async finish(
    job: Pick<NotificationJob, 'id' | 'target' | 'firing'>,
    isSent: boolean,
    nowMs: number,
    batch = 0,
  ): Promise<void> {
    const args = [job.id, isSent ? 1 : 0, nowMs, this.#intervalMs, batch, DECIDED_MS];
    await finishScript.run(this.#redis.client, [this.#keyOf(job)], args);
  }

  #keyOf({ firing, target }: Pick<NotificationJob, 'target' | 'firing'>): string {
    const recipient = hash('sha256', target, 'hex').slice(0, 16);
    return `${notificationPrefix(this.#redis.prefix)}:group:${firing.rule.id}:${recipient}`;
  }
}

function asArray(answer: unknown): unknown[] {
  if (Array.isArray(answer)) return answer as unknown[];
  throw new StoreError('redis', 'unavailable', `expected an array of a script, got ${String(answer)}`);
}
