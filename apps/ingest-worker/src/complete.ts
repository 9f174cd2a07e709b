import { readOverload } from '@logpond/db/clickhouse-error';
import type { PlanCount, PlanRange } from '@logpond/db/log-store';
import { StoreError } from '@logpond/db/store-error';
import { decodeSeq } from '@logpond/log-block/entry-id';
import type { NativePlan } from '@logpond/log-block/native';
import { passFailpoint } from '@logpond/runtime/failpoint';
import { declareCounter } from '@logpond/runtime/metrics';
import type { PlanRows, Window } from './plan-rows.ts';
import type { Shard } from './shard.ts';

/** Repairs of one completion; then it begins anew after a pause. */
const REPAIRS_MAX = 3;

/**
 * One INSERT. Its outcome is unknown when it fails.
 *
 * @throws {StoreError}
 */
export async function insertRows(shard: Shard, rows: NativePlan, token: string): Promise<void> {
  passFailpoint('W4.before');
  const startedAt = performance.now();
  try {
    await shard.deps.store.insertPlan(rows.chunks, token, rows.rows);
  } catch (error) {
    const overload = error instanceof StoreError ? readOverload(error) : undefined;
    if (overload !== undefined) {
      overloadedInserts.inc({ reason: overload });
      shard.pace.noteOverload(overload);
    }
    throw error;
  }
  shard.pace.noteInsert(performance.now() - startedAt);
  passFailpoint('W4.after');
}

/**
 * Makes sure that a window of a plan is stored, each row once, whatever was tried before: what is there is counted
 * first, and only what is missing is sent.
 *
 * An insert is all or nothing in each partition, and its token is remembered for each partition. So what is missing
 * is sent under the token of the first try first: should that one still be running, the server takes whichever
 * comes first and ignores the other. Rows that were accepted under a token and are not there (the server remembers
 * the token although it lost the rows, or was wrong) go under the next: `#r1` to `#r3`.
 *
 * @param mark letter of the further tokens.
 * @returns rows put in where an insert had left them out; 0 when all were there, or none and one insert did it.
 * @throws {StoreError} as the store says, and `unavailable` when rows are still missing after the last token.
 */
export async function complete(
  shard: Shard,
  rows: PlanRows,
  { window, token, mark }: { window: Window; token: string; mark: 'r' | 'a' },
): Promise<number> {
  const all = rows.encode(window);
  if (all.rows === 0) return 0;
  const range = rows.rangeOf(window);
  const found = await countAlive(shard, range, rows.dead);
  let stored = found;
  let isRepair = found.entries > 0;
  for (let tries = 0; stored.entries < all.rows && tries <= REPAIRS_MAX; tries += 1) {
    const missing = stored.entries === 0 ? all : rows.encode(window, await findMissing(shard, range));
    isRepair ||= tries > 0;
    const facts = { expected: all.rows, stored: stored.entries, missing: missing.rows, plan: token, tries };
    if (isRepair) shard.log.warn(facts, 'repairing a plan that is stored in part');
    await insertRows(shard, missing, tries === 0 ? token : `${token}#${mark}${tries}`);
    stored = await countAlive(shard, range, rows.dead);
  }
  if (stored.entries < all.rows) {
    const message = `expected ${all.rows} entries stored after ${REPAIRS_MAX} repairs, got ${stored.entries}`;
    throw new StoreError('clickhouse', 'unavailable', message);
  }
  noteSurplus(shard, all.rows, stored, token);
  return isRepair ? Math.max(0, all.rows - found.entries) : 0;
}

/**
 * Counts what is stored of a range beside what is dead of it. Rows that are dead may be stored all the same, and must
 * not stand for others that are missing: then the offsets themselves are compared.
 *
 * @throws {StoreError}
 */
export async function countAlive(
  shard: Shard,
  range: PlanRange,
  dead: readonly Window[],
): Promise<PlanCount> {
  const { store } = shard.deps;
  const all = await store.countPlan(range);
  const { offset: from } = decodeSeq(range.seqFrom);
  const { offset: to } = decodeSeq(range.seqTo);
  const inRange = dead.filter((window) => window.from < to && window.to > from);
  if (all.rows === 0 || inRange.length === 0) return all;
  const present = await store.listPlanOffsets(range);
  for (const window of inRange)
    for (let offset = Math.max(from, window.from); offset < Math.min(to, window.to); offset += 1)
      present.delete(offset);
  return { entries: present.size, rows: present.size + all.rows - all.entries };
}

/** Reports entries that are stored more than once; there is nothing to do about them here. */
export function noteSurplus(shard: Shard, expected: number, stored: PlanCount, plan: string): void {
  const surplus = stored.rows - Math.min(expected, stored.entries);
  if (surplus <= 0) return;
  surplusEntries.inc(surplus);
  shard.log.error({ expected, ...stored, plan }, 'more entries are stored than were acknowledged');
}

/** Offsets of a range that ClickHouse does not hold. */
async function findMissing(shard: Shard, range: PlanRange): Promise<Set<number>> {
  const present = await shard.deps.store.listPlanOffsets(range);
  const missing = new Set<number>();
  const { offset: from } = decodeSeq(range.seqFrom);
  const { offset: to } = decodeSeq(range.seqTo);
  for (let offset = from; offset < to; offset += 1) if (!present.has(offset)) missing.add(offset);
  return missing;
}

const surplusEntries = declareCounter('logpond_ingest_surplus_entries_total', {
  help: 'Entries found stored more than once; must stay 0',
});
const overloadedInserts = declareCounter('logpond_ingest_overloaded_inserts_total', {
  help: 'Inserts that failed because ClickHouse could not keep up: parts, memory, busy',
  labels: ['reason'],
});
