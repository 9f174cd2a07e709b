import type { HistoryRow } from '@logpond/db/alert-history';
import type { NotificationJob } from '@logpond/db/notification-job';
import { declareCounter } from '@logpond/runtime/metrics';

/** What the history says of notifications that the queue had no room for (`NotificationQueue.add`). */
export function describeLeftOut(jobs: readonly NotificationJob[], nowMs: number): HistoryRow[] {
  return jobs.map(({ channel, target, firing }) => {
    leftOut.inc({ channel });
    const { projectId, firingId, startedAtMs, kind, repeat } = firing;
    return {
      type: 'delivery',
      projectId,
      firingId,
      startedAtMs,
      kind,
      repeat,
      channel,
      target,
      status: 'failed',
      attempts: 0,
      lastError: 'too many notifications of the project wait already',
      atMs: nowMs,
    };
  });
}

const leftOut = declareCounter('logpond_notifier_left_out_total', {
  help: 'Notifications that were not queued, as too many of their project waited.',
  labels: ['channel'],
});
