import { setTimeout as delay } from 'node:timers/promises';
import { pushHistory } from '@logpond/db/alert-windows';
import type { HistoryRow } from '@logpond/db/alert-history';
import type { NotificationGroups } from '@logpond/db/notification-group';
import type { Attempt } from '@logpond/db/notification-work';
import type { GroupJob, NotificationJob, Outcome, QueuedJob, TestJob } from '@logpond/db/notification-job';
import type { AlertRuleDocument } from '@logpond/db/rule-change';
import { StoreError } from '@logpond/db/store-error';
import { passFailpoint } from '@logpond/runtime/failpoint';
import { declareCounter, declareHistogram } from '@logpond/runtime/metrics';
import type { NotifierParts } from '../notifier.ts';
import type { Notice, NoticeItem, Sent } from './notice.ts';
import { gatherSamples, SAMPLES_MAX } from './samples.ts';
import { findRange, makeSearchLink } from './search-link.ts';
import { WebhookTurns } from '../webhook-turns.ts';
import { sendToWebhook } from './webhook-channel.ts';

const STORE_PAUSE_MS = 1_000;
/** Before a test that found no turn asks again. */
const TEST_PAUSE_MS = 250;
const RECENT_MAX = 10_000;
const DAY_MS = 86_400_000;

/** One notification, or several in one mail, to one recipient. */
type Parcel = Pick<NotificationJob, 'id' | 'channel' | 'target' | 'channelIndex'> & {
  rule: AlertRuleDocument;
  items: [NoticeItem, ...NoticeItem[]];
  /** Of the notifications in it. */
  ids: readonly string[];
  isTest: boolean;
};

/** How a parcel is sent, and what is let go of when no other attempt follows. */
type Way = { send: () => Promise<Sent>; end: (isSent: boolean) => Promise<void> };

/** Why nothing is sent: too many mails to the recipient or of the project today, or there is no such rule any more. */
type UnsentReason = 'recipient' | 'project' | 'rule_deleted';
type Claim = Awaited<ReturnType<NotificationGroups['claim']>>;

/** Carries out the jobs of the queue: what is sent to whom, and what the history says of it. */
export class Delivery {
  readonly #parts: NotifierParts;
  readonly #turns: WebhookTurns;

  constructor(parts: NotifierParts) {
    this.#parts = parts;
    this.#turns = new WebhookTurns(parts.now);
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
    const { groups, allowance, email, now } = this.#parts;
    const { rule, ...item } = job.firing;
    const parcel: Parcel = { ...job, rule, items: [item], ids: [job.id], isTest: false };
    const end = async (isSent: boolean): Promise<void> => groups.finish(job, isSent, now());
    const current = await this.#findRule(rule);
    if (current === undefined) return this.#giveUp(parcel, 'rule_deleted', attempt, end);
    const send = async (): Promise<Sent> => this.#send(parcel, current, attempt);
    if (job.channel === 'webhook') {
      const turn = await this.#turns.take(rule.projectId);
      if ('atMs' in turn) return { kind: 'later', atMs: turn.atMs };
      return this.#deliver(parcel, attempt, { send, end }).finally(turn.end);
    }
    // Before it takes part in a group: what cannot be sent leaves nothing behind.
    const { projectId } = rule;
    const allowed = email.mode === 'none' ? 'ok' : await allowance.check({ ...job, projectId }, now());
    if (allowed !== 'ok') return this.#giveUp(parcel, allowed, attempt, end);
    const claim = await groups.claim(job, now());
    if (claim.kind === 'join') return this.#join(job, claim);
    return this.#deliver(parcel, attempt, { send, end });
  }

  async #join(job: NotificationJob, { group, atMs }: Extract<Claim, { kind: 'join' }>): Promise<Outcome> {
    // All that share the mail make the same id, and each sees to it that there is such a job before it is done.
    const id = `group-${group.key.replaceAll(/[^A-Za-z0-9]+/g, '-')}-${group.batch}`;
    await this.#parts.queue.addGroup({ id, group, notification: job }, atMs, this.#parts.now());
    return { kind: 'done' };
  }

  async #notifyGroup(job: GroupJob, attempt: Attempt): Promise<Outcome> {
    const { groups, now } = this.#parts;
    const { notification, group } = job;
    const closed = await groups.close(job, now());
    if (closed.kind === 'wait') return { kind: 'later', atMs: closed.atMs };
    const [first, ...rest] = closed.items.map(({ firing }) => firing);
    if (first === undefined) return { kind: 'done' };
    const { rule } = notification.firing;
    const ids = closed.items.map(({ id }) => id);
    const parcel: Parcel = { ...notification, id: job.id, rule, items: [first, ...rest], ids, isTest: false };
    const end = async (isSent: boolean): Promise<void> =>
      groups.finish({ ...notification, id: job.id }, isSent, now(), group.batch);
    const current = await this.#findRule(rule);
    if (current === undefined) return this.#giveUp(parcel, 'rule_deleted', attempt, end);
    return this.#deliver(parcel, attempt, { send: async () => this.#send(parcel, current, attempt), end });
  }

  async #test(job: TestJob, attempt: Attempt): Promise<Outcome> {
    const { channel, target, rule, id } = job;
    const atMs = this.#parts.now();
    if (atMs > job.expiresAtMs) return { kind: 'failed', reason: 'nobody waits for this test any more' };
    const turn = channel === 'webhook' ? await this.#turns.take(rule.projectId) : undefined;
    // Not behind those that were put off: somebody waits for the answer.
    if (turn !== undefined && 'atMs' in turn) return { kind: 'later', atMs: atMs + TEST_PAUSE_MS };
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
    const parcel: Parcel = { ...job, items: [item], ids: [], isTest: true };
    const { status, answer } = await this.#send(parcel, rule, attempt).finally(() => turn?.end());
    return {
      kind: 'done',
      test: { channel, target, status: status === 'retry' ? 'failed' : status, answer },
    };
  }

  /** Sends, writes the attempt into the history, and lets go of what the parcel holds when no other attempt follows. */
  async #deliver(parcel: Parcel, attempt: Attempt, { send, end }: Way): Promise<Outcome> {
    const { recent, queue, log } = this.#parts;
    const { channel, id, ids, items } = parcel;
    const sent = recent.get(id) ?? (await send());
    if (sent.status === 'sent') {
      if (recent.size >= RECENT_MAX) recent.delete(recent.keys().next().value ?? '');
      recent.set(id, sent);
      passFailpoint('N1.after', channel);
    }
    const status = sent.status === 'retry' ? (attempt.isLast ? 'failed' : 'retrying') : sent.status;
    notifications.inc({ channel, status });
    await this.#writeHistory(parcel, status, sent, attempt);
    if (sent.status === 'sent') passFailpoint('N2.after', channel);
    if (status === 'retrying') return { kind: 'retry', reason: sent.answer ?? '' };
    await end(status === 'sent');
    // By itself it is forgotten later: no reason to do the job again.
    await queue.release(channel, items[0].projectId, ids).catch((error: unknown) => {
      log.debug({ err: error }, 'the room of a notification could not be given back');
    });
    return status === 'failed' ? { kind: 'failed', reason: sent.answer ?? '' } : { kind: 'done' };
  }

  /** Sends nothing, and says so in the history. */
  async #giveUp(parcel: Parcel, reason: UnsentReason, attempt: Attempt, end: Way['end']): Promise<Outcome> {
    return this.#deliver(parcel, attempt, { send: async () => this.#refuse(reason), end });
  }

  #refuse(reason: UnsentReason): Sent {
    unsent.inc({ reason });
    const { allowance } = this.#parts;
    return {
      status: 'failed',
      answer: reason === 'rule_deleted' ? 'the rule was deleted' : allowance.explain(reason),
    };
  }

  async #send(parcel: Parcel, current: AlertRuleDocument, attempt: Attempt): Promise<Sent> {
    const { allowance, email, webhook, log, now } = this.#parts;
    const { channel, id, target, rule } = parcel;
    if (channel === 'email' && email.mode !== 'none') {
      const taken = await allowance.spend({ id, target, projectId: rule.projectId }, now());
      if (taken !== 'ok') return this.#refuse(taken);
    }
    const notice = await this.#describe(parcel, attempt);
    passFailpoint('N1.before', channel);
    const rules = { current, asFired: rule };
    const sent =
      channel === 'email'
        ? await email.send(notice, target)
        : await sendToWebhook(notice, parcel, rules, webhook);
    if (sent.status === 'failed' || (sent.status === 'retry' && attempt.isLast)) {
      log.warn({ channel, jobId: id, answer: sent.answer }, 'a notification was given up');
    }
    return sent;
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
      search: makeSearchLink(publicUrl, rule, range),
      isTest,
    };
  }

  async #findRule({ projectId, id }: AlertRuleDocument): Promise<AlertRuleDocument | undefined> {
    return this.#parts.rules.find(projectId, id);
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
const unsent = declareCounter('logpond_notifier_unsent_total', {
  help: 'Notifications that were given up before an attempt, by reason: recipient or project (too many mails today), rule_deleted.',
  labels: ['reason'],
});
const delays = declareHistogram('logpond_notifier_delay_seconds', {
  help: 'Seconds from a transition of a rule to the first attempt to tell a recipient.',
  labels: ['channel'],
});
