import { hash } from 'node:crypto';
import type { OutboxItem } from './alert-windows.ts';
import type { AlertRuleDocument } from './rule-change.ts';

export type Channel = 'email' | 'webhook';

/** One notification to one recipient. */
export type NotificationJob = {
  /** The same whenever the notification is found again (`nameNotification`). */
  id: string;
  /** In the queue its rule's `notifications` hold only the one that this job is for. */
  firing: OutboxItem;
  channel: Channel;
  /** Address or URL. */
  target: string;
  /** Index into the rule's notifications as they were. */
  channelIndex: number;
};

/** Several notifications of one rule to one recipient that go out in one mail. */
export type GroupJob = {
  id: string;
  /** Where the items are (notification-group.ts). */
  group: { key: string; batch: number };
  /** The notification that opened the group. */
  notification: NotificationJob;
};

/** A notification that nothing fired for, sent because a user wants to see it arrive. */
export type TestJob = {
  id: string;
  rule: AlertRuleDocument;
  channel: Channel;
  target: string;
  channelIndex: number;
  /** Nobody waits for the answer any more after this. */
  expiresAtMs: number;
};

/** What became of a test. `answer` is the reply line of the SMTP server, or the status of the web server. */
export type TestDelivery = {
  channel: Channel;
  target: string;
  status: 'sent' | 'failed' | 'not_configured';
  answer: string | null;
};

export type QueuedJob =
  | { kind: 'notification'; notification: NotificationJob }
  | { kind: 'group'; group: GroupJob }
  | { kind: 'test'; test: TestJob };

/** What a job came to: done for good, to be tried again, given up, or not due yet (which is no attempt). */
export type Outcome =
  | { kind: 'done'; test?: TestDelivery }
  | { kind: 'retry'; reason: string }
  | { kind: 'failed'; reason: string }
  | { kind: 'later'; atMs: number };

type Target = Pick<NotificationJob, 'channel' | 'target' | 'channelIndex'>;

/** Every address and every URL that a rule notifies, each once. */
export function listTargets({ notifications }: Pick<AlertRuleDocument, 'notifications'>): Target[] {
  const targets = new Map<string, Target>();
  for (const [channelIndex, { type, config }] of notifications.entries()) {
    for (const target of type === 'email' ? config.recipients : [config.url]) {
      const name = `${type} ${target}`;
      if (!targets.has(name)) targets.set(name, { channel: type, target, channelIndex });
    }
  }
  return [...targets.values()];
}

/** The id of a notification, without a colon, which the queue does not take. */
function nameNotification(
  firing: Pick<OutboxItem, 'firingId' | 'kind' | 'repeat'>,
  { channel, target }: Pick<Target, 'channel' | 'target'>,
): string {
  const to = hash('sha256', `${channel}\0${target}`, 'hex').slice(0, 16);
  return `${firing.firingId}-${firing.kind}-${firing.repeat}-${to}`;
}

/** All jobs of a transition: one for each address and each URL. */
export function listNotificationJobs(firing: OutboxItem): NotificationJob[] {
  return listTargets(firing.rule).map((target) => ({
    id: nameNotification(firing, target),
    firing,
    ...target,
  }));
}

/** The job as it is kept. */
export function trimNotification(job: NotificationJob): NotificationJob {
  return { ...job, firing: { ...job.firing, rule: trimRule(job.firing.rule, job) } };
}

/** A rule with the one notification that a job is for: with many webhooks it does not lie in the queue for each whole. */
export function trimRule(
  rule: AlertRuleDocument,
  { channel, target, channelIndex }: Target,
): AlertRuleDocument {
  const own = rule.notifications[channelIndex];
  if (channel === 'email')
    return { ...rule, notifications: [{ type: 'email', config: { recipients: [target] } }] };
  return { ...rule, notifications: own === undefined ? [] : [own] };
}
