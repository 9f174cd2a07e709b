import type { PlanRange } from '@logpond/db/log-store';
import { StoreError } from '@logpond/db/store-error';
import { encodeSeq } from '@logpond/log-block/entry-id';
import { passFailpoint } from '@logpond/runtime/failpoint';
import { declareCounter } from '@logpond/runtime/metrics';
import { noteUnaudited, readAuditRecord } from './audit-record.ts';
import type { AuditRecord } from './audit-record.ts';
import { countAlive, noteSurplus } from './complete.ts';
import { mendRecord } from './mend.ts';
import type { Mending } from './mend.ts';
import { pause } from '@logpond/db/store-retry';
import { retry } from './retry.ts';
import { healRollUp } from './roll-up.ts';
import type { Shard } from './shard.ts';

const PERIOD_MIN_MS = 1_000;
const PERIOD_MAX_MS = 15_000;
/** Records of one look. */
const RECORDS_MAX = 100;
/** Together in one count. */
const PROJECTS_MAX = 500;
const HOURS_MAX = 500;

/**
 * Counts every committed plan once more when its inserts are long over (`AUDIT_AFTER_MS`), and mends what is missing
 * from the stream, which still holds it for the replay window. This is what notices a server that said 200 and stored
 * nothing, and a part that was lost after it was stored.
 *
 * Plans that are due together are counted together, and one by one only when the sum is wrong. Nothing is asked of
 * ClickHouse while nothing is due. A plan whose first insert was not the only one may also have left the hourly
 * roll-up short: that is compared, and healed, too.
 *
 * @throws {ShardGivenBack} when a step failed while stopping.
 */
export async function auditShard(shard: Shard): Promise<void> {
  const { deps, signal } = shard;
  const periodMs = Math.min(PERIOD_MAX_MS, Math.max(PERIOD_MIN_MS, deps.auditAfterMs / 4));
  while (!signal.aborted) {
    await pause(periodMs, signal);
    let hasMore = true;
    while (hasMore && !signal.aborted) hasMore = await retry(shard, 'audit', async () => auditDue(shard));
  }
}

/** Audits what is due, oldest first. True when there is more. */
async function auditDue(shard: Shard): Promise<boolean> {
  const { cursor, deps } = shard;
  const unaudited = await cursor.countUnaudited();
  noteUnaudited(unaudited - (shard.progress.unaudited ?? unaudited));
  shard.progress.unaudited = unaudited;
  const texts = await cursor.listAudits(deps.now() - deps.auditAfterMs, RECORDS_MAX);
  if (texts.length === 0) return false;
  passFailpoint('W8.before');
  const records = texts.map(readAuditRecord).filter((record) => record !== undefined);
  unreadableRecords.inc(texts.length - records.length);
  for (const group of groupRecords(records)) await auditGroup(shard, group);
  await cursor.dropAudits(texts);
  passFailpoint('W8.after');
  return texts.length === RECORDS_MAX;
}

/** Neighbours whose rows can be counted in one query. */
export function groupRecords(records: readonly AuditRecord[]): AuditRecord[][] {
  const groups: AuditRecord[][] = [];
  let projects = new Set<string>();
  let hours = new Set<number>();
  for (const record of records) {
    const last = groups.at(-1);
    const before = last?.at(-1);
    const joined = projects.union(new Set(Object.keys(record.retention)));
    const joinedHours = hours.union(new Set(record.hours));
    const isNeighbour = before?.epoch === record.epoch && before.to === record.from;
    const isSmall = joined.size <= PROJECTS_MAX && joinedHours.size <= HOURS_MAX;
    const isPlain = [before, record].every((one) => one?.hours !== undefined && one.dead === undefined);
    if (last !== undefined && isNeighbour && isSmall && isPlain) {
      last.push(record);
      [projects, hours] = [joined, joinedHours];
    } else {
      groups.push([record]);
      projects = new Set(Object.keys(record.retention));
      hours = new Set(record.hours);
    }
  }
  return groups;
}

async function auditGroup(shard: Shard, group: readonly AuditRecord[]): Promise<void> {
  const [first, last] = [group[0], group.at(-1)];
  if (first === undefined || last === undefined) return;
  const expected = group.reduce((sum, { rows }) => sum + rows, 0);
  // Only a record that is alone has any.
  const dead = first.dead ?? [];
  const stored = await countAlive(shard, rangeOfGroup(shard, group), dead);
  const isRight = stored.rows === expected && stored.entries === expected;
  if (!isRight && group.length > 1) {
    for (const record of group) await auditGroup(shard, [record]);
    return;
  }
  const plan = `${shard.cursor.shard}:${first.epoch}:${first.from}-${last.to}`;
  noteSurplus(shard, expected, stored, plan);
  const isMended = stored.entries < expected && (await mend(shard, first, expected - stored.entries));
  auditedEntries.inc(expected);
  for (const record of group) if (record.isUncertain || isMended) await healRollUp(shard, record);
}

/** Puts missing rows in. What is refused now, or lost from the stream too, is told and left. True: some were put in. */
async function mend(shard: Shard, record: AuditRecord, missing: number): Promise<boolean> {
  const facts = { from: record.from, to: record.to, epoch: record.epoch, expected: record.rows };
  let outcomes: readonly { reason: Mending['reason'] | 'refused'; entries: number }[];
  try {
    outcomes = await mendRecord(shard, record, missing);
  } catch (error) {
    if (!(error instanceof StoreError) || error.kind === 'unavailable') throw error;
    outcomes = [{ reason: 'refused', entries: missing }];
  }
  for (const { reason, entries } of outcomes) {
    missingEntries.inc({ reason }, entries);
    const isExpected = reason === 'retention' || reason === 'deleted';
    const message =
      reason === 'repaired'
        ? 'stored entries were missing and are stored again'
        : 'stored entries are missing';
    shard.log[isExpected ? 'info' : 'error']({ ...facts, missing: entries, reason }, message);
  }
  return outcomes.some(({ reason }) => reason === 'repaired');
}

function rangeOfGroup(shard: Shard, group: readonly AuditRecord[]): PlanRange {
  const times = group.map(({ minTimeNs, maxTimeNs }) => [BigInt(minTimeNs), BigInt(maxTimeNs)] as const);
  const hours = group.every((record) => record.hours !== undefined)
    ? [...new Set(group.flatMap((record) => record.hours ?? []))]
    : undefined;
  const epoch = group[0]?.epoch ?? 0;
  return {
    projectIds: [...new Set(group.flatMap(({ retention }) => Object.keys(retention)))],
    minTimeNs: times.reduce((least, [time]) => (time < least ? time : least), times[0]?.[0] ?? 0n),
    maxTimeNs: times.reduce((most, [, time]) => (time > most ? time : most), 0n),
    hours,
    shard: shard.cursor.shard,
    seqFrom: encodeSeq(epoch, group[0]?.from ?? 0),
    seqTo: encodeSeq(epoch, group.at(-1)?.to ?? 0),
  };
}

const auditedEntries = declareCounter('logpond_ingest_audited_entries_total', {
  help: 'Entries counted once more after their commit',
});
const missingEntries = declareCounter('logpond_ingest_missing_entries_total', {
  help: 'Entries found missing after their commit: repaired, gone (from the stream too), refused, retention, deleted',
  labels: ['reason'],
});
const unreadableRecords = declareCounter('logpond_ingest_unreadable_audits_total', {
  help: 'Audit records of another release, not audited',
});
