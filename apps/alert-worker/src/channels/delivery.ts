import { setTimeout as delay } from 'node:timers/promises';
import { pushHistory } from '@logpond/db/alert-windows';
import type { HistoryRow } from '@logpond/db/alert-history';
import type { Attempt } from '@logpond/db/notification-queue';
import type { GroupJob, NotificationJob, Outcome, QueuedJob, TestJob } from '@logpond/db/notification-job';
import type { AlertRuleDocument } from '@logpond/db/rule-change';
import { StoreError } from '@logpond/db/store-error';
import { passFailpoint } from '@logpond/runtime/failpoint';
import { declareCounter, declareHistogram } from '@logpond/runtime/metrics';
import type { NotifierParts } from '../notifier.ts';
import type { Notice, NoticeItem, Sent } from './notice.ts';
import { gatherSamples, SAMPLES_MAX } from './samples.ts';
import { findRange, makeSearchLink } from './search-link.ts';
import { sendToWebhook } from './webhook-channel.ts';

const STORE_PAUSE_MS = 1_000;
const RECENT_MAX = 10_000;
const DAY_MS = 86_400_000;

/** One notification, or several in one mail, to one recipient. */
type Parcel = Pick<NotificationJob, 'id' | 'channel' | 'target' | 'channelIndex'> & {
  rule: AlertRuleDocument;
  items: [NoticeItem, ...NoticeItem[]];
  isTest: boolean;
};

/** Carries out the jobs of the queue: what is sent to whom, and what the history says of it. */
export class Delivery {
  readonly #parts: NotifierParts;

  constructor(parts: NotifierParts) {
    this.#parts = parts;
  }

  /** Does one job. A store that is away is waited for, which is no attempt. */
  async carryOut(job: QueuedJob, attempt: Attempt): Promise<Outcome> {
    try {
      switch (job.kind) {
        case 'notification':
          return await this.#notify(job.notification, attempt);
        case 'group':
          return await this.#notifyGroup(job.group, attempt);
        case 'test':
          return await this.#test(job.test, attempt);
      }
    } catch (error) {
      const { log, now } = this.#parts;
      if (error instanceof StoreError && error.kind === 'unavailable') {
        return { kind: 'later', atMs: now() + STORE_PAUSE_MS };
      }
      log.error({ err: error }, 'a notification could not be carried out');
      throw error;
    }
  }

  async #notify(job: NotificationJob, attempt: Attempt): Promise<Outcome> {
    const { groups, queue, now } = this.#parts;
    const current = await this.#findRule(job.firing.rule);
    if (current === undefined) return { kind: 'done' };
    if (job.channel === 'email') {
      const claim = await groups.claim(job, now());
      if (claim.kind === 'join') {
        const { group } = claim;
        // All that share the mail make the same id, and each sees to it that there is such a job before it is done.
        const id = `group-${group.key.replaceAll(/[^A-Za-z0-9]+/g, '-')}-${group.batch}`;
        await queue.addGroup({ id, group, notification: job }, claim.atMs, now());
        return { kind: 'done' };
      }
    }
    const { rule, ...item } = job.firing;
    const parcel: Parcel = { ...job, rule, items: [item], isTest: false };
    return this.#deliver(parcel, current, attempt, async (isSent) => groups.finish(job, isSent, now()));
  }

  async #notifyGroup(job: GroupJob, attempt: Attempt): Promise<Outcome> {
    const { groups, now } = this.#parts;
    const { notification } = job;
    const current = await this.#findRule(notification.firing.rule);
    if (current === undefined) return { kind: 'done' };
    const closed = await groups.close(job, now());
    if (closed.kind === 'wait') return { kind: 'later', atMs: closed.atMs };
    const [first, ...rest] = closed.items.map(({ firing }) => firing);
    if (first === undefined) return { kind: 'done' };
    const { rule } = notification.firing;
    const parcel: Parcel = { ...notification, id: job.id, rule, items: [first, ...rest], isTest: false };
    const end = async (isSent: boolean): Promise<void> =>
      groups.finish({ ...notification, id: job.id }, isSent, now());
    return this.#deliver(parcel, current, attempt, end);
  }

  async #test(job: TestJob, attempt: Attempt): Promise<Outcome> {
    const { channel, target, rule, id } = job;
    const atMs = this.#parts.now();
    if (atMs > job.expiresAtMs) return { kind: 'failed', reason: 'nobody waits for this test any more' };
    const { threshold } = rule.condition;
    const item: NoticeItem = {
      firingId: id,
      kind: 'fired',
      repeat: 0,
      projectId: rule.projectId,
      count: threshold,
      peak: threshold,
      startedAtMs: atMs,
      resolvedAtMs: null,
      atMs,
    };
    const parcel: Parcel = { ...job, items: [item], isTest: true };
    const { status, answer } = await this.#send(parcel, rule, attempt);
    return {
      kind: 'done',
      test: { channel, target, status: status === 'retry' ? 'failed' : status, answer },
    };
  }

  /** Sends, writes the attempt into the history, and lets go of the group when no other attempt follows. */
  async #deliver(
    parcel: Parcel,
    current: AlertRuleDocument,
    attempt: Attempt,
    end: (isSent: boolean) => Promise<void>,
  ): Promise<Outcome> {
    const { recent } = this.#parts;
    const sent = recent.get(parcel.id) ?? (await this.#send(parcel, current, attempt));
    if (sent.status === 'sent') {
      if (recent.size >= RECENT_MAX) recent.delete(recent.keys().next().value ?? '');
      recent.set(parcel.id, sent);
      passFailpoint('N1.after', parcel.channel);
    }
    const status = sent.status === 'retry' ? (attempt.isLast ? 'failed' : 'retrying') : sent.status;
    notifications.inc({ channel: parcel.channel, status });
    await this.#writeHistory(parcel, status, sent, attempt);
    if (sent.status === 'sent') passFailpoint('N2.after', parcel.channel);
    if (status === 'retrying') return { kind: 'retry', reason: sent.answer ?? '' };
    await end(status === 'sent');
    if (status === 'failed') {
      const { channel, id } = parcel;
      this.#parts.log.warn({ channel, jobId: id, answer: sent.answer }, 'a notification was given up');
      return { kind: 'failed', reason: sent.answer ?? '' };
    }
    return { kind: 'done' };
  }

  async #send(parcel: Parcel, current: AlertRuleDocument, attempt: Attempt): Promise<Sent> {
    const notice = await this.#describe(parcel, attempt);
    passFailpoint('N1.before', parcel.channel);
    if (parcel.channel === 'email') return this.#parts.email.send(notice, parcel.target);
    const rules = { current, asFired: parcel.rule };
    return sendToWebhook(notice, parcel, rules, this.#parts.webhook);
  }

  async #describe(parcel: Parcel, attempt: Attempt): Promise<Notice> {
    const { projects, queries, now, publicUrl } = this.#parts;
    const { id, rule, items, isTest } = parcel;
    const project = await projects.find(rule.projectId);
    const range = findRange(rule, items);
    const oldestNs = BigInt(now() - (project?.retentionDays ?? 0) * DAY_MS) * 1_000_000n;
    const scope = { projectId: rule.projectId, oldestNs };
    const ask = async (): Promise<Notice['samples']> =>
      queries.samples(scope, rule, { ...range, limit: SAMPLES_MAX });
    const wanted = isTest ? 0 : Math.max(...items.map(({ peak }) => peak));
    const samples = await gatherSamples(ask, wanted, now() - attempt.addedAtMs);
    const delayS = (now() - (items.at(-1) ?? items[0]).atMs) / 1_000;
    if (!isTest && attempt.number === 1) delays.observe({ channel: parcel.channel }, Math.max(0, delayS));
    return {
      id,
      rule,
      project: { id: rule.projectId, name: project?.name ?? rule.projectId },
      items,
      samples,
      url: makeSearchLink(publicUrl, rule, range),
      isTest,
    };
  }

  async #findRule({ projectId, id }: AlertRuleDocument): Promise<AlertRuleDocument | undefined> {
    const rule = await this.#parts.rules.find(projectId, id);
    if (rule === undefined) notifications.inc({ channel: 'none', status: 'rule_deleted' });
    return rule;
  }

  /** Tried until Redis takes it or the notifier stops: what was sent must not be sent again for this alone. */
  async #writeHistory(
    { channel, target, items }: Parcel,
    status: Extract<HistoryRow, { type: 'delivery' }>['status'],
    { answer }: Sent,
    attempt: Attempt,
  ): Promise<void> {
    const { redis, now, signal, log } = this.#parts;
    const rows = items.map(({ projectId, firingId, startedAtMs, kind, repeat }): HistoryRow => {
      const lastError = status === 'sent' ? null : answer;
      const what = { channel, target, status, attempts: attempt.number, lastError, atMs: now() };
      return { type: 'delivery', projectId, firingId, startedAtMs, kind, repeat, ...what };
    });
    for (;;) {
      try {
        const dropped = await pushHistory(redis, items[0].projectId, rows);
        if (dropped > 0)
          log.warn({ dropped }, 'rows of the history were dropped: too many wait for ClickHouse');
        return;
      } catch (error) {
        if (!(error instanceof StoreError) || signal.aborted) throw error;
        await delay(STORE_PAUSE_MS, undefined, { signal }).catch(() => {});
      }
    }
  }
}

const notifications = declareCounter('logpond_notifier_notifications_total', {
  help: 'Attempts to notify a recipient, by what became of them.',
  labels: ['channel', 'status'],
});
const delays = declareHistogram('logpond_notifier_delay_seconds', {
  help: 'Seconds from a transition of a rule to the first attempt to tell a recipient.',
  labels: ['channel'],
});
