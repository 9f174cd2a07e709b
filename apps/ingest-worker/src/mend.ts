import type { StreamRange } from '@logpond/db/log-cursor';
import { StoreError } from '@logpond/db/store-error';
import type { PlanPart } from '@logpond/log-block/native';
import type { AuditRecord } from './audit-record.ts';
import { isCanaryProject } from './canary-project.ts';
import { complete } from './complete.ts';
import { tryDecode } from './plan-blocks.ts';
import { PlanRows } from './plan-rows.ts';
import type { Shard } from './shard.ts';

const DAY_MS = 86_400_000;

/** `retention`, `deleted`: it may be right that rows are missing. `gone`: the stream does not hold them any more. */
export type Mending = 'mended' | 'retention' | 'deleted' | 'gone';

/**
 * Stores what is missing of a committed plan, from the stream. A place in time or a project that rows may rightly be
 * gone from is left alone: their whole partition may have been dropped.
 *
 * @throws {StoreError} as the stores say.
 */
export async function mendRecord(shard: Shard, record: AuditRecord): Promise<Mending> {
  const classes = Object.values(record.retention);
  const oldestMs = Number(BigInt(record.minTimeNs) / 1_000_000n);
  if (oldestMs + Math.min(...classes) * DAY_MS <= shard.deps.now()) return 'retention';
  for (const projectId of Object.keys(record.retention)) {
    if (isCanaryProject(projectId)) continue;
    if ((await shard.deps.findRetentionClass(projectId)) === undefined) return 'deleted';
  }
  const range = await readAgain(shard, record);
  if (range === undefined) return 'gone';
  const rows = restoreRows(shard, record, range);
  const { token } = rows;
  await shard.inserting.hold(async () => complete(shard, rows, { window: rows, token, mark: 'a' }));
  return 'mended';
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
  const parts = range.blocks.flatMap(({ block, firstOffset, rows, damage }): PlanPart[] => {
    // A block that is dead as a whole may be one that ends its reader.
    const isDead = dead.some(({ from, to }) => from <= firstOffset && firstOffset + rows <= to);
    const decoded = isDead || damage !== undefined ? 'dead' : tryDecode(block);
    return typeof decoded === 'string' ? [] : [{ block: decoded, firstOffset }];
  });
  return new PlanRows({ shard: shard.cursor.shard, epoch: record.epoch }, record, parts, dead);
}
