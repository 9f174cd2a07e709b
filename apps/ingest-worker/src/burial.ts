import { summarizeRefusal } from '@logpond/db/clickhouse-error';
import type { DeadLetterBurial, DeadReason } from '@logpond/db/dead-letters';
import type { StreamBlock } from '@logpond/db/stream-block';
import { shardOf } from '@logpond/db/shard-map';
import { StoreError } from '@logpond/db/store-error';
import { renderIngestJson } from '@logpond/log-block/ingest-json';
import type { PlanPart } from '@logpond/log-block/native';
import { declareCounter, declareGauge } from '@logpond/runtime/metrics';
import { overlapping } from './plan-rows.ts';
import type { PlanRows, Window } from './plan-rows.ts';
import { retry, ShardGivenBack } from './retry.ts';
import type { Shard } from './shard.ts';

/** A window that ClickHouse refuses, why, and what of it is stored all the same. */
export type RefusedRows = Window & { refusal: StoreError; stored: ReadonlySet<number> };

/** A letter ends with the entry that reaches this, so that one that does not fit waits for little room only. */
const LETTER_BYTES = 256 * 1024;

type LetterInHand = { firstOffset: number; lines: string[]; bytes: number };

/**
 * Puts the refused rows of a plan into dead letters, as POST /ingest takes them: of each window and project one
 * letter, more when they are large. Ids follow from the offsets, so doing it again changes nothing.
 *
 * @returns entries buried.
 * @throws {ShardGivenBack} when the shard is to be given back. While the dead letters are full it waits.
 */
export async function buryRows(
  shard: Shard,
  rows: PlanRows,
  refused: readonly RefusedRows[],
): Promise<number> {
  let buried = 0;
  for (const window of refused) {
    // ClickHouse quotes the refused values: they are for the project of this one row, and for no other.
    const isSingle = window.to - window.from === 1;
    const detail = isSingle ? window.refusal.message : summarizeRefusal(window.refusal);
    const letters = new Map<string, LetterInHand>();
    for (const part of overlapping(rows.parts, window)) {
      for (const { offset, projectId, line } of listRefused(rows, part, window)) {
        const letter = letters.get(projectId) ?? { firstOffset: offset, lines: [], bytes: 0 };
        letters.set(projectId, letter);
        letter.lines.push(line);
        letter.bytes += line.length;
        buried += 1;
        if (letter.bytes < LETTER_BYTES) continue;
        await buryLetter(shard, toBurial(shard, projectId, letter, detail));
        letters.delete(projectId);
      }
    }
    for (const [projectId, letter] of letters)
      await buryLetter(shard, toBurial(shard, projectId, letter, detail));
  }
  return buried;
}

/** The rows of a part that a refused window would have stored. */
function* listRefused(
  rows: PlanRows,
  { block, firstOffset }: PlanPart,
  window: RefusedRows,
): Generator<{ offset: number; projectId: string; line: string }> {
  let row = 0;
  for (const [index, run] of block.runs.entries()) {
    const first = firstOffset + row;
    row += run.rows;
    if (first + run.rows <= window.from || first >= window.to) continue;
    for (const entry of block.entries(index)) {
      const offset = firstOffset + entry.row;
      if (offset < window.from || offset >= window.to || window.stored.has(offset)) continue;
      if (!rows.isKept(entry.timeNs, run.projectId)) continue;
      yield { offset, projectId: run.projectId, line: renderIngestJson(entry) };
    }
  }
}

function toBurial(shard: Shard, projectId: string, letter: LetterInHand, detail: string): DeadLetterBurial {
  return {
    id: letterId(shard, letter.firstOffset, letter.lines.length),
    projectId,
    reason: 'refused_by_store',
    detail,
    entries: letter.lines.length,
    firstOffset: letter.firstOffset,
    createdAtMs: shard.deps.now(),
    payload: Buffer.from(`${letter.lines.join('\n')}\n`),
    isReadable: true,
  };
}

/**
 * Puts a block that cannot be read into dead letters: one for each project that its header names, the first with the
 * bytes of the block, since they cannot be divided. A header that cannot be believed gives one letter without a
 * project, for operators only.
 *
 * @throws {ShardGivenBack} when the shard is to be given back. While the dead letters are full it waits.
 */
export async function buryBlock(
  shard: Shard,
  block: StreamBlock,
  reason: DeadReason,
  detail: string,
): Promise<void> {
  const { firstOffset } = block;
  const facts = { reason, detail, isReadable: false, createdAtMs: shard.deps.now() };
  const owners = await listOwners(shard, block);
  for (const [index, { projectId, offset, entries }] of owners.entries()) {
    await buryLetter(shard, {
      ...facts,
      id: letterId(shard, offset, entries),
      projectId,
      entries,
      firstOffset: offset,
      payload: index === 0 ? block.block : Buffer.alloc(0),
    });
  }
  shard.log.error({ reason, detail, firstOffset, rows: block.rows }, 'a block cannot be read; it is buried');
}

type Owner = { projectId: string | null; offset: number; entries: number };

/** A project that is not there is a damaged id: nobody would look for its letters. */
async function listOwners(shard: Shard, block: StreamBlock): Promise<Owner[]> {
  const unknown = [{ projectId: null, offset: block.firstOffset, entries: block.rows }];
  if (block.damage !== undefined || block.runs.length === 0) return unknown;
  for (const projectId of new Set(block.runs.map((run) => run.projectId))) {
    const isOurs = shardOf(projectId, shard.deps.redis.shards) === shard.cursor.shard;
    const find = async (): Promise<number | undefined> => shard.deps.findRetentionClass(projectId);
    if (!isOurs || (await retry(shard, 'bury', find)) === undefined) return unknown;
  }
  const owners = new Map<string, { projectId: string; offset: number; entries: number }>();
  let offset = block.firstOffset;
  for (const { projectId, rows } of block.runs) {
    const owner = owners.get(projectId) ?? { projectId, offset, entries: 0 };
    owners.set(projectId, owner);
    owner.entries += rows;
    offset += rows;
  }
  return [...owners.values()];
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
