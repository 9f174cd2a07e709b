import type { StreamRange } from '@logpond/db/log-cursor';
import { rangesOf } from '@logpond/db/offset-range';
import { StoreError } from '@logpond/db/store-error';
import type { PlanPart } from '@logpond/log-block/native';
import type { AuditRecord } from './audit-record.ts';
import { isCanaryProject } from './canary-project.ts';
import { complete, countAlive } from './complete.ts';
import { boundClock, ORPHAN_CLASS_DAYS } from './plan.ts';
import { isWithin } from './plan-blocks.ts';
import { PlanRows } from './plan-rows.ts';
import type { Shard } from './shard.ts';
import { tryDecode } from './try-decode.ts';

const DAY_MS = 86_400_000;
const DAY_NS = 86_400_000_000_000n;

/**
 * What became of missing entries. `retention`, `deleted`: they may rightly be gone. `gone`: the stream does not hold
 * them any more.
 */
export type Mending = { reason: 'repaired' | 'retention' | 'deleted' | 'gone'; entries: number };

/**
 * Stores what is missing of a committed plan, from the stream. Each row is judged for itself: one of a project that was
 * deleted, or that is past its own retention by now, may rightly be gone and is left; it excuses no other.
 *
 * @param missing entries that were found missing.
 * @throws {StoreError} as the stores say.
 */
export async function mendRecord(shard: Shard, record: AuditRecord, missing: number): Promise<Mending[]> {
  const deleted = await findDeleted(shard, record);
  const range = await readAgain(shard, record);
  if (range === undefined) return [{ reason: excuseAll(shard, record, deleted) ?? 'gone', entries: missing }];
  const rows = restoreRows(shard, record, range);
  const nowNs = BigInt(Math.trunc(boundClock(range, shard.deps.now()))) * 1_000_000n;
  const excused: number[] = [];
  let isRetention = false;
  for (const { offset, projectId, timeNs } of rows.alive()) {
    const days = record.retention[projectId] ?? ORPHAN_CLASS_DAYS;
    const isPast = timeNs + BigInt(days) * DAY_NS <= nowNs;
    if (isPast || deleted.has(projectId)) excused.push(offset);
    isRetention ||= isPast;
  }
  rows.addDead(rangesOf(excused));
  const repaired = await repair(shard, rows);
  const rest = missing - repaired;
  const mended: Mending[] = repaired > 0 ? [{ reason: 'repaired', entries: repaired }] : [];
  if (rest <= 0) return mended;
  return [...mended, { reason: isRetention ? 'retention' : 'deleted', entries: rest }];
}

/** Returns how many were put in. */
async function repair(shard: Shard, rows: PlanRows): Promise<number> {
  const { token } = rows;
  return shard.inserting.hold(async () => {
    const expected = rows.encode().rows;
    if (expected === 0) return 0;
    const { entries } = await countAlive(shard, rows.rangeOf(), rows.dead);
    if (entries < expected) await complete(shard, rows, { window: rows, token, mark: 'a' });
    return Math.max(0, expected - entries);
  });
}

async function findDeleted(shard: Shard, { retention }: AuditRecord): Promise<Set<string>> {
  const deleted = new Set<string>();
  for (const projectId of Object.keys(retention)) {
    if (isCanaryProject(projectId)) continue;
    if ((await shard.deps.findRetentionClass(projectId)) === undefined) deleted.add(projectId);
  }
  return deleted;
}

/** Why every row of a plan may rightly be gone; undefined when one must be there. */
function excuseAll(
  shard: Shard,
  record: AuditRecord,
  deleted: ReadonlySet<string>,
): 'retention' | 'deleted' | undefined {
  const projects = Object.entries(record.retention).filter(([projectId]) => !deleted.has(projectId));
  const newestMs = Number(BigInt(record.maxTimeNs) / 1_000_000n);
  const isPast = projects.every(([, days]) => newestMs + days * DAY_MS <= shard.deps.now());
  if (!isPast) return undefined;
  return projects.length > 0 ? 'retention' : 'deleted';
}

/** Undefined when the stream was trimmed meanwhile. */
async function readAgain(shard: Shard, { from, to }: AuditRecord): Promise<StreamRange | undefined> {
  try {
    return await shard.cursor.readPlanned(from, to);
  } catch (error) {
    if (error instanceof StoreError) throw error;
    shard.log.warn({ err: error }, 'a range to be repaired cannot be read from the stream');
    return undefined;
  }
}

/** The rows as they were planned, without those that are in dead letters. */
function restoreRows(shard: Shard, record: AuditRecord, range: StreamRange): PlanRows {
  const dead = record.dead ?? [];
  const parts = range.blocks.flatMap((block): PlanPart[] => {
    // A block that is dead as a whole may be one that ends its reader.
    const isDead = block.damage !== undefined || isWithin(block, dead);
    const decoded = isDead ? 'dead' : tryDecode(block.block);
    return typeof decoded === 'string' ? [] : [{ block: decoded, firstOffset: block.firstOffset }];
  });
  return new PlanRows({ shard: shard.cursor.shard, epoch: record.epoch }, record, parts, dead);
}
