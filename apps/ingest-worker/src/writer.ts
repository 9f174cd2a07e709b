import { isAtLimit } from '@logpond/db/log-cursor';
import type { StreamRange } from '@logpond/db/log-cursor';
import { readStreamEnd } from '@logpond/db/stream-end';
import { passFailpoint } from '@logpond/runtime/failpoint';
import { declareCounter, declareHistogram } from '@logpond/runtime/metrics';
import { writeAuditRecord } from './audit-record.ts';
import { planRange, readPlan } from './plan.ts';
import type { Plan } from './plan.ts';
import { decodePlan } from './plan-blocks.ts';
import type { PlanRows } from './plan-rows.ts';
import { pause } from '@logpond/db/store-retry';
import { retry } from './retry.ts';
import type { Shard } from './shard.ts';
import { storePlan } from './store-plan.ts';
import type { StoredPlan } from './store-plan.ts';

const WAIT_MS = 2_000;

/**
 * Carries one shard's entries from the stream into ClickHouse, exactly once. The one place that commits.
 *
 *   wait -> read -> plan (written down, fenced) -> insert -> [verify] -> commit (fenced)
 *
 * A crash leaves either no plan, and the next owner reads from `done`, or a plan, and the next owner counts what is
 * stored of it and inserts the rest before it commits. An insert that failed may have been stored: it is never given
 * up, only completed. What can never be stored goes to the dead letters first.
 *
 * Returns when this owner was replaced or the shard, drained, is in another epoch than this owner knows.
 *
 * @throws {ShardGivenBack} when a step failed while stopping.
 */
export async function writeShard(shard: Shard): Promise<void> {
  const { cursor, ownership, progress, signal, pace } = shard;
  if (ownership.plan !== undefined && !(await goOn(shard, ownership.plan))) return;
  let notBefore = 0;
  while (!signal.aborted) {
    const isWaiting = await retry(shard, 'wait', async () => cursor.waitForBlock(progress.done, WAIT_MS));
    if (!isWaiting) continue;
    await pause(notBefore - performance.now(), signal);
    if (signal.aborted) return;
    const startedAt = performance.now();
    const flush = await writeNext(shard);
    if (flush === undefined) return;
    notBefore = startedAt + pace.restMs({ ...flush, costMs: performance.now() - startedAt });
  }
}

/** Carries out the plan that an earlier owner wrote down. False: this owner was replaced. */
async function goOn(shard: Shard, planText: string): Promise<boolean> {
  const plan = readPlan(planText);
  const { cursor, ownership, log } = shard;
  log.info({ from: plan.from, to: plan.to, tries: ownership.planTries }, 'going on with an inherited plan');
  const range = await retry(shard, 'read', async () => cursor.readPlanned(plan.from, plan.to));
  passFailpoint('W2.after');
  return carryOut(shard, { planText, plan, range, isInherited: true });
}

/** Reads, plans and stores what lies at `done`. Undefined: this owner was replaced. */
async function writeNext(shard: Shard): Promise<{ rows: number; isFull: boolean } | undefined> {
  const { cursor, ownership, deps, pace, progress } = shard;
  const { limits } = pace;
  const from = progress.done;
  const range = await retry(shard, 'read', async () => cursor.read(from, limits));
  passFailpoint('W2.after');
  if (range.rows === 0) return { rows: 0, isFull: false };
  if (ownership.isDraining && (await isRenewed(shard))) return undefined;
  const plan = await retry(shard, 'plan', async () => planRange(range, deps.findRetentionClass, deps.now()));
  const planText = JSON.stringify(plan);
  passFailpoint('W3.before');
  if (!(await retry(shard, 'plan', async () => cursor.writePlan(from, planText)))) return undefined;
  passFailpoint('W3.after');
  if (!(await carryOut(shard, { planText, plan, range, isInherited: false }))) return undefined;
  return { rows: range.rows, isFull: isAtLimit(range, limits) };
}

/**
 * Whether the blocks just read belong to an epoch that began after this owner took the shard. It begins only when
 * nothing is left below it, so a range is of one epoch, and an epoch that has not begun now was not there to read.
 */
async function isRenewed({ cursor, deps, log, signal }: Shard): Promise<boolean> {
  const read = async (): Promise<{ epoch: number }> => readStreamEnd(deps.redis, cursor.shard);
  const { epoch } = await retry({ log, signal }, 'read', read);
  return epoch !== cursor.epoch;
}

type Task = { planText: string; plan: Plan; range: StreamRange; isInherited: boolean };

/** Insert, verify, commit. False: this owner was replaced, and the plan stays for the next. */
async function carryOut(shard: Shard, task: Task): Promise<boolean> {
  const { cursor, ownership, progress, inserting } = shard;
  const { planText, plan, range, isInherited } = task;
  const startedAt = performance.now();
  progress.oldestInHandMs = receivedAtMs(range.blocks[0]);
  const rows = await decodePlan(shard, { plan, range, isInherited });
  const planned = rows.encode().rows;
  const expired = rows.countExpired();
  const isUncertain = isInherited || ownership.isDraining;
  const stored = await inserting.hold(async () => storePlan(shard, rows, isUncertain));
  passFailpoint('W5.after');
  const kept = planned - stored.buried;
  const audit = writeAuditRecord(cursor, plan, rows, { rows: kept, isUncertain: stored.isUncertain });
  passFailpoint('W6.before');
  const newestMs = receivedAtMs(range.blocks.at(-1)) ?? shard.deps.now();
  if (!(await retry(shard, 'commit', async () => cursor.commit(planText, range, newestMs, audit))))
    return false;
  passFailpoint('W6.after');
  Object.assign(progress, { done: plan.to, movedAt: performance.now(), oldestInHandMs: undefined });
  flushSeconds.observe((performance.now() - startedAt) / 1_000);
  reportFlush(shard, rows, { ...stored, rows: kept, expired, bytes: range.bytes });
  return true;
}

function reportFlush(
  shard: Shard,
  rows: PlanRows,
  flush: StoredPlan & { rows: number; expired: number; bytes: number },
): void {
  expiredEntries.inc(flush.expired);
  storedEntries.inc(flush.rows);
  repairedEntries.inc(flush.repaired);
  shard.log.info({ ...flush, plan: rows.token }, 'flushed');
}

/** Of a damaged block nothing is known. */
function receivedAtMs(block: StreamRange['blocks'][number] | undefined): number | undefined {
  const run = block?.runs.at(-1);
  return run === undefined ? undefined : Number(run.receivedAtNs / 1_000_000n);
}

const storedEntries = declareCounter('logpond_ingest_stored_entries_total', {
  help: 'Entries stored in ClickHouse',
});
const expiredEntries = declareCounter('logpond_ingest_expired_entries_total', {
  help: 'Entries that had passed their retention before they could be stored',
});
const repairedEntries = declareCounter('logpond_ingest_repaired_entries_total', {
  help: 'Entries that an insert had left out and a verification put in',
});
const flushSeconds = declareHistogram('logpond_ingest_flush_seconds', {
  help: 'From the plan to its commit',
});
