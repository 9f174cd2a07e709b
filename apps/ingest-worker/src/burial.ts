import { summarizeRefusal } from '@logpond/db/clickhouse-error';
import type { DeadLetterBurial, DeadReason } from '@logpond/db/dead-letters';
import type { StreamBlock } from '@logpond/db/stream-block';
import { shardOf } from '@logpond/db/shard-map';
import { StoreError } from '@logpond/db/store-error';
import { renderIngestJson } from '@logpond/log-block/ingest-json';
import { rangesOf } from '@logpond/db/offset-range';
import { encodeSeq } from '@logpond/log-block/entry-id';
import { declareCounter, declareGauge } from '@logpond/runtime/metrics';
import { overlapping } from './plan-rows.ts';
import type { PlanRows, Window } from './plan-rows.ts';
import { ShardGivenBack } from '@logpond/db/store-retry';
import { retry } from './retry.ts';
import type { Shard } from './shard.ts';

/** A window that ClickHouse refuses, why, and what of it is stored all the same. */
export type RefusedRows = Window & { refusal: StoreError; stored: ReadonlySet<number> };

/** A letter ends with the entry that reaches this, so that one that does not fit waits for little room only. */
const LETTER_BYTES = 256 * 1024;

type LetterInHand = { offsets: number[]; lines: string[]; bytes: number };

/**
 * Puts the refused rows of a plan into dead letters, as POST /ingest takes them: of each window and project one
 * letter, more when they are large. Each letter takes its rows out of the plan, here and (recorded with it) for the
 * next owner; rows of a refused window that are stored stay in it.
 *
 * @returns entries buried.
 * @throws {ShardGivenBack} when the shard is to be given back. While the dead letters are full it waits.
 */
export async function buryRows(
  shard: Shard,
  rows: PlanRows,
  refused: readonly RefusedRows[],
): Promise<number> {
  const buried: number[] = [];
  const bury = async (projectId: string, letter: LetterInHand, detail: string): Promise<void> => {
    await buryLetter(shard, toBurial(shard, projectId, letter, detail));
    buried.push(...letter.offsets);
  };
  for (const window of refused) {
    // ClickHouse quotes the refused values: they are for the project of this one row, and for no other.
    const isSingle = window.to - window.from === 1;
    const detail = isSingle ? window.refusal.message : summarizeRefusal(window.refusal);
    const letters = new Map<string, LetterInHand>();
    for (const { offset, projectId, line } of listRefused(rows, window)) {
      const letter = letters.get(projectId) ?? { offsets: [], lines: [], bytes: 0 };
      letters.set(projectId, letter);
      letter.offsets.push(offset);
      letter.lines.push(line);
      letter.bytes += line.length;
      if (letter.bytes < LETTER_BYTES) continue;
      await bury(projectId, letter, detail);
      letters.delete(projectId);
    }
    for (const [projectId, letter] of letters) await bury(projectId, letter, detail);
  }
  rows.addDead(rangesOf(buried));
  return buried.length;
}

/** The rows of a refused window that are to be stored and are not. */
function* listRefused(
  rows: PlanRows,
  window: RefusedRows,
): Generator<{ offset: number; projectId: string; line: string }> {
  const refused = new Set<number>();
  for (const { offset } of rows.alive(window)) if (!window.stored.has(offset)) refused.add(offset);
  for (const { block, firstOffset } of overlapping(rows.parts, window)) {
    let row = 0;
    for (const [index, run] of block.runs.entries()) {
      const first = firstOffset + row;
      row += run.rows;
      if (first + run.rows <= window.from || first >= window.to) continue;
      for (const entry of block.entries(index)) {
        const offset = firstOffset + entry.row;
        if (!refused.has(offset)) continue;
        yield { offset, projectId: run.projectId, line: renderIngestJson(entry) };
      }
    }
  }
}

function toBurial(shard: Shard, projectId: string, letter: LetterInHand, detail: string): DeadLetterBurial {
  const firstOffset = letter.offsets[0] ?? 0;
  return {
    id: letterId(shard, firstOffset, letter.lines.length),
    projectId,
    reason: 'refused_by_store',
    detail,
    entries: letter.lines.length,
    firstOffset,
    createdAtMs: shard.deps.now(),
    payload: Buffer.from(`${letter.lines.join('\n')}\n`),
    isReadable: true,
    covers: rangesOf(letter.offsets),
  };
}

/** What a project is told: the rest speaks of the block, and with it of other projects. */
const DETAILS: Record<DeadReason, string> = {
  damaged_block: 'the block that held these entries is damaged',
  kills_reader: 'every process that decoded the block that held these entries ended',
  refused_by_store: 'the store refuses these entries',
};

/**
 * Puts a block that cannot be read into dead letters. Its bytes cannot be divided: they are kept once, for operators
 * only; of each project that its header names an empty letter tells how many entries are lost. What of the block is
 * stored already (by an owner that could read it) is neither. A header that cannot be believed gives the operators'
 * letter alone.
 *
 * @throws {ShardGivenBack} when the shard is to be given back. While the dead letters are full it waits.
 */
export async function buryBlock(
  shard: Shard,
  block: StreamBlock,
  reason: DeadReason,
  detail: string,
): Promise<void> {
  const { firstOffset, rows } = block;
  const { cursor, ownership, deps } = shard;
  const facts = { reason, isReadable: false, createdAtMs: deps.now() };
  const owners = (await listOwners(shard, block)).filter(({ entries }) => entries > 0);
  const isUnknown = owners.some(({ projectId }) => projectId === null);
  if (owners.length > 0) {
    await buryLetter(shard, {
      ...facts,
      id: letterId(shard, firstOffset, rows),
      projectId: null,
      detail: isUnknown ? detail : `${detail}; its entries are counted in the letters of their projects`,
      entries: isUnknown ? rows : 0,
      firstOffset,
      payload: block.block,
    });
  }
  for (const { projectId, id, offset, entries } of owners) {
    if (projectId === null) continue;
    const letter = { id, projectId, detail: DETAILS[reason], entries, firstOffset: offset };
    await buryLetter(shard, { ...facts, ...letter, payload: Buffer.alloc(0) });
  }
  const covers = [{ from: firstOffset, to: firstOffset + rows }];
  const record = async (): Promise<'buried' | 'full' | 'replaced'> =>
    deps.deadLetters.recordBuried(cursor.shard, ownership.fence, `block:${firstOffset}`, covers);
  if ((await retry(shard, 'bury', record)) === 'replaced')
    throw new ShardGivenBack('this owner was replaced amid a burial');
  shard.log.error({ reason, detail, firstOffset, rows }, 'a block cannot be read; it is buried');
}

/** A project of an unread block: its letter, its first offset, and how many of its entries are not stored. */
type Owner = { projectId: string | null; id: string; offset: number; entries: number };

/** A project that is not there is a damaged id: nobody would look for its letters. */
async function listOwners(shard: Shard, block: StreamBlock): Promise<Owner[]> {
  const { firstOffset, rows, runs } = block;
  const id = letterId(shard, firstOffset, rows);
  const unknown = [{ projectId: null, id, offset: firstOffset, entries: rows }];
  if (block.damage !== undefined || runs.length === 0) return unknown;
  for (const projectId of new Set(runs.map((run) => run.projectId))) {
    const isOurs = shardOf(projectId, shard.deps.redis.shards) === shard.cursor.shard;
    const find = async (): Promise<number | undefined> => shard.deps.findRetentionClass(projectId);
    if (!isOurs || (await retry(shard, 'bury', find)) === undefined) return unknown;
  }
  const stored = await listStored(shard, block);
  const owners = new Map<string, { offset: number; offsets: number[] }>();
  let offset = firstOffset;
  for (const run of runs) {
    const owner = owners.get(run.projectId) ?? { offset, offsets: [] };
    owners.set(run.projectId, owner);
    for (const end = offset + run.rows; offset < end; offset += 1) owner.offsets.push(offset);
  }
  return [...owners].map(([projectId, owner]) => ({
    projectId,
    // Of all its entries, so that it stays the same whatever is stored.
    id: letterId(shard, owner.offset, owner.offsets.length),
    offset: owner.offset,
    entries: owner.offsets.filter((one) => !stored.has(one)).length,
  }));
}

/** Offsets of a block that are stored, by its header. */
async function listStored({ deps, cursor, ...shard }: Shard, block: StreamBlock): Promise<Set<number>> {
  const { firstOffset, rows, runs } = block;
  const times = runs.flatMap(({ minTimeNs, maxTimeNs }) => [minTimeNs, maxTimeNs]);
  const least = times.reduce((a, b) => (a < b ? a : b), times[0] ?? 0n);
  const range = {
    projectIds: [...new Set(runs.map((run) => run.projectId))],
    // A damaged time may lie before any that ClickHouse knows.
    minTimeNs: least < 0n ? 0n : least,
    maxTimeNs: times.reduce((a, b) => (a > b ? a : b), 0n),
    shard: cursor.shard,
    seqFrom: encodeSeq(cursor.epoch, firstOffset),
    seqTo: encodeSeq(cursor.epoch, firstOffset + rows),
  };
  return retry(shard, 'verify', async () => deps.store.listPlanOffsets(range));
}

function letterId({ cursor }: Shard, firstOffset: number, entries: number): string {
  return `${cursor.epoch}-${cursor.shard}-${firstOffset}-${entries}`;
}

/** Nothing is stepped over before its letter is kept: a shard whose dead letters are full stands still, and says so. */
async function buryLetter(shard: Shard, burial: DeadLetterBurial): Promise<void> {
  const { cursor, ownership, deps } = shard;
  const bury = async (): Promise<void> => {
    const outcome = await deps.deadLetters.bury(cursor.shard, ownership.fence, burial);
    fullDeadLetters.set({ shard: cursor.shard }, outcome === 'full' ? 1 : 0);
    if (outcome === 'replaced') throw new ShardGivenBack('this owner was replaced amid a burial');
    if (outcome === 'buried') return;
    const wanted = `expected room for ${burial.payload.length} bytes among the dead letters of shard ${cursor.shard}`;
    const remedy = 'the shard waits until letters are replayed or deleted, or REDIS_BUDGET_BYTES is raised';
    throw new StoreError('redis', 'unavailable', `${wanted}, got none; ${remedy}`);
  };
  await retry(shard, 'bury', bury);
  deadLetterEntries.inc({ reason: burial.reason }, burial.entries);
}

const deadLetterEntries = declareCounter('logpond_ingest_dead_letter_entries_total', {
  help: 'Acknowledged entries that could not be stored and went to the dead letters',
  labels: ['reason'],
});
const fullDeadLetters = declareGauge('logpond_ingest_dead_letters_full', {
  help: '1 while a shard stands still because its dead letters take all they may',
  labels: ['shard'],
});
