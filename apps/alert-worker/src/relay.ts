import type { HistoryRow } from '@logpond/db/alert-history';
import { pushHistory } from '@logpond/db/alert-windows';
import type { OutboxItem } from '@logpond/db/alert-windows';
import { listNotificationJobs } from '@logpond/db/notification-job';
import type { NotificationJob } from '@logpond/db/notification-job';
import { passFailpoint } from '@logpond/runtime/failpoint';
import { declareCounter } from '@logpond/runtime/metrics';
import { describeLeftOut } from './channels/left-out.ts';
import { retry } from './retry.ts';
import type { AlertShard } from './shard.ts';

/** Items carried on at once; with 20 recipients in each of 20 channels that is 40,000 jobs, commonly about 100. */
const BATCH_MAX = 100;
const LOOK_MS = 1_000;
/** Versions of a firing's row: of two the greater counts. Between them lie the reminders. */
const VERSION_FIRED = 1;
const VERSION_RESOLVED = 1_000_000_000;

/**
 * Carries transitions from the outbox to the queue of notifications and to the history, oldest first. An item goes
 * only when both have it; after a crash it is carried on once more, under the same names.
 *
 * @throws {ShardGivenBack} when a step failed while stopping.
 */
export async function relayShard(shard: AlertShard): Promise<void> {
  const { bell, signal } = shard;
  while (!signal.aborted) {
    const isMore = await relayBatch(shard);
    if (!isMore) await bell.wait(LOOK_MS, signal);
  }
}

/** True: there may be more. */
async function relayBatch(shard: AlertShard): Promise<boolean> {
  const { windows, deps } = shard;
  passFailpoint('E3.before');
  const items = await retry(shard, 'outbox', async () => windows.readOutbox(BATCH_MAX));
  if (items.length === 0) return false;
  const jobs = items.flatMap(({ item }) => makeJobs(item));
  const leftOut = jobs.length > 0 ? await retry(shard, 'queue', async () => deps.queue.add(jobs)) : [];
  passFailpoint('E3.after');
  // Together: one after the other, each would wait for the disk.
  const groups = [...groupRows(items.map(({ item }) => item))];
  await Promise.all(groups.map(async ([projectId, rows]) => keepRows(shard, projectId, rows)));
  for (const [projectId, own] of Map.groupBy(leftOut, ({ firing }) => firing.projectId)) {
    await keepRows(shard, projectId, describeLeftOut(own, deps.now()));
  }
  await retry(shard, 'outbox', async () => windows.dropOutbox(items.map(({ text }) => text)));
  passFailpoint('E4.after');
  return items.length === BATCH_MAX;
}

async function keepRows(shard: AlertShard, projectId: string, rows: readonly HistoryRow[]): Promise<void> {
  const dropped = await retry(shard, 'history', async () => pushHistory(shard.deps.redis, projectId, rows));
  if (dropped === 0) return;
  droppedRows.inc(dropped);
  shard.log.error({ dropped }, 'the history waits too long for ClickHouse: its oldest rows were dropped');
}

/** The notifications of a transition; none of an end that nobody wants to hear of. */
export function makeJobs(firing: OutboxItem): NotificationJob[] {
  if (firing.kind === 'resolved' && (firing.rule.notifyResolved !== true || firing.isCutOff)) return [];
  return listNotificationJobs(firing);
}

/** A transition as the history keeps it. */
export function makeHistoryRow(item: OutboxItem): Extract<HistoryRow, { type: 'firing' }> {
  const { rule, kind, repeat, peak } = item;
  const version = kind === 'fired' ? VERSION_FIRED : VERSION_FIRED + repeat;
  return {
    type: 'firing',
    projectId: item.projectId,
    ruleId: rule.id,
    ruleName: rule.name,
    firingId: item.firingId,
    startedAtMs: item.startedAtMs,
    resolvedAtMs: item.resolvedAtMs,
    count: item.firedCount,
    threshold: rule.condition.threshold,
    timeWindow: rule.condition.timeWindow,
    peak,
    version: kind === 'resolved' ? VERSION_RESOLVED : version,
  };
}

function groupRows(items: readonly OutboxItem[]): Map<string, HistoryRow[]> {
  const groups = new Map<string, HistoryRow[]>();
  for (const item of items) {
    const group = groups.get(item.projectId) ?? [];
    groups.set(item.projectId, group);
    group.push(makeHistoryRow(item));
  }
  return groups;
}

const droppedRows = declareCounter('logpond_alert_dropped_history_rows_total', {
  help: 'Rows of the alert history that were dropped because 100,000 waited for ClickHouse',
});
