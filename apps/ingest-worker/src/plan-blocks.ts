import type { StreamRange } from '@logpond/db/log-cursor';
import { joinRanges } from '@logpond/db/offset-range';
import type { StreamBlock } from '@logpond/db/stream-block';
import type { DecodedBlock } from '@logpond/log-block/decode';
import type { PlanPart } from '@logpond/log-block/native';
import { passFailpoint } from '@logpond/runtime/failpoint';
import { buryBlock } from './burial.ts';
import type { Plan } from './plan.ts';
import { PlanRows } from './plan-rows.ts';
import type { Window } from './plan-rows.ts';
import type { Shard } from './shard.ts';
import { findKillers } from './trial.ts';
import { tryDecode } from './try-decode.ts';

/**
 * From the third owner on that finds the same plan open, three readers may have died of it: a process of its own tries
 * the blocks first.
 */
const CAREFUL_TRIES = 3;

/**
 * Decodes the blocks of a plan. What cannot be decoded goes to the dead letters and is stepped over; so does, when
 * three readers did not get past the plan, a block that ends a process which is there to try it. What an earlier owner
 * buried is not looked at again.
 *
 * @throws {ShardGivenBack} when the shard is to be given back.
 */
export async function decodePlan(
  shard: Shard,
  { plan, range, isInherited }: { plan: Plan; range: StreamRange; isInherited: boolean },
): Promise<PlanRows> {
  const { ownership, cursor } = shard;
  const buried = isInherited ? joinRanges(ownership.buried ?? []) : [];
  const open = range.blocks.filter((block) => !isWithin(block, buried));
  const isCareful = isInherited && ownership.planTries >= CAREFUL_TRIES;
  if (isCareful) shard.log.warn({ from: plan.from, tries: ownership.planTries }, 'reading a plan with care');
  const killers = isCareful ? await findKillers(shard, open) : new Set();
  const parts: PlanPart[] = [];
  const dead = [...buried];
  for (const block of open) {
    const { firstOffset, rows } = block;
    const decoded = killers.has(firstOffset) ? await buryKiller(shard, block) : await readBlock(shard, block);
    if (decoded === undefined) dead.push({ from: firstOffset, to: firstOffset + rows });
    else parts.push({ block: decoded, firstOffset });
  }
  return new PlanRows(cursor, plan, parts, dead);
}

/** Whether one of these ranges holds all of a block. */
export function isWithin({ firstOffset, rows }: StreamBlock, ranges: readonly Window[]): boolean {
  return ranges.some(({ from, to }) => from <= firstOffset && firstOffset + rows <= to);
}

async function buryKiller(shard: Shard, block: StreamBlock): Promise<undefined> {
  const detail = `${shard.ownership.planTries} workers ended amid its plan, and so did two processes that tried to decode it`;
  await buryBlock(shard, block, 'kills_reader', detail);
}

/** Decodes one block with all its columns. Undefined when it is damaged, and buried. */
async function readBlock(shard: Shard, block: StreamBlock): Promise<DecodedBlock | undefined> {
  passFailpoint('W2.decode', String(block.firstOffset));
  const decoded = block.damage === undefined ? tryDecode(block.block) : block.damage;
  if (typeof decoded !== 'string') return decoded;
  await buryBlock(shard, block, 'damaged_block', decoded);
  return undefined;
}
