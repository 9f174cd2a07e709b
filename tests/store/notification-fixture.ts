import type { OutboxItem } from '@logpond/db/alert-windows';
import { listNotificationJobs } from '@logpond/db/notification-job';
import type { NotificationJob } from '@logpond/db/notification-job';
import type { AlertRuleDocument } from '@logpond/db/rule-change';
import { createUuidV7 } from '@logpond/db/uuid-v7';
import { PROJECT } from './stream-fixture.ts';

const CREATED_MS = 1_790_000_000_000;

export function makeRule(changes: Partial<AlertRuleDocument> = {}): AlertRuleDocument {
  const createdAt = new Date(CREATED_MS).toISOString();
  return {
    version: 1,
    generation: 1,
    id: createUuidV7(CREATED_MS),
    projectId: PROJECT,
    name: 'Many errors',
    enabled: true,
    condition: { field: 'level', operator: 'equals', value: 'error', threshold: 50, timeWindow: '5m' },
    notifications: [{ type: 'email', config: { recipients: ['ops@example.com'] } }],
    createdAt,
    updatedAt: createdAt,
    ...changes,
  };
}

export function makeFiring(rule: AlertRuleDocument, changes: Partial<OutboxItem> = {}): OutboxItem {
  const atMs = CREATED_MS + 60_000;
  return {
    firingId: createUuidV7(atMs),
    kind: 'fired',
    repeat: 0,
    projectId: rule.projectId,
    rule,
    count: 57,
    firedCount: 57,
    peak: 57,
    startedAtMs: atMs,
    resolvedAtMs: null,
    atMs,
    ...changes,
  };
}

/** The only job of a firing of a rule with one recipient. */
export function makeJob(rule: AlertRuleDocument, changes: Partial<OutboxItem> = {}): NotificationJob {
  const [job] = listNotificationJobs(makeFiring(rule, changes));
  if (job === undefined) throw new RangeError('expected a rule with a recipient');
  return job;
}
