import type { StreamRange } from '@logpond/db/log-cursor';
import type { StreamBlock } from '@logpond/db/stream-block';
import { decodeBlock } from '@logpond/log-block/decode';
import type { DecodedBlock } from '@logpond/log-block/decode';
import { BlockError, COLUMN } from '@logpond/log-block/layout';
import type { PlanPart } from '@logpond/log-block/native';
import { passFailpoint } from '@logpond/runtime/failpoint';
import { buryBlock } from './burial.ts';
import type { Plan } from './plan.ts';
import { PlanRows } from './plan-rows.ts';
import type { Window } from './plan-rows.ts';
import { retry, ShardGivenBack } from './retry.ts';
import type { Shard } from './shard.ts';

/** From the third owner that finds the same plan open on, something in it may be what ends them: it is read with care. */
const CAREFUL_TRIES = 3;
/** Of the wire numbers of levels, which begin at 1 (layout.ts). */
const LEVEL_MAX = 5;
/** A block is buried unread when so many readers began it and did not end. */
const BLOCK_READERS_MAX = 3;

/**
 * Decodes the blocks of a plan. What cannot be decoded goes to the dead letters and is stepped over; so does, read
 * with care, a block that ended three readers.
 *
 * @throws {ShardGivenBack} when the shard is to be given back.
 */
export async function decodePlan(shard: Shard, plan: Plan, range: StreamRange): Promise<PlanRows> {
  const { ownership, cursor } = shard;
  const isCareful = ownership.planTries >= CAREFUL_TRIES && range.from === ownership.done;
  if (isCareful) shard.log.warn({ from: plan.from, tries: ownership.planTries }, 'reading a plan with care');
  const parts: PlanPart[] = [];
  const dead: Window[] = [];
  for (const block of range.blocks) {
    const { firstOffset, rows } = block;
    // The owner before got past the blocks in front of its probe; probing them again would forget that one's count.
    const isProbed = isCareful && firstOffset >= (ownership.probe?.offset ?? 0);
    const decoded = isProbed ? await probeBlock(shard, plan, block) : await readBlock(shard, block);
    if (decoded === undefined) dead.push({ from: firstOffset, to: firstOffset + rows });
    else parts.push({ block: decoded, firstOffset });
  }
  return new PlanRows(cursor, plan, parts, dead);
}

/** Decodes one block and encodes it, noting the begin and the end. Undefined when it is buried. */
async function probeBlock(shard: Shard, plan: Plan, block: StreamBlock): Promise<DecodedBlock | undefined> {
  const { cursor } = shard;
  const readers = await retry(shard, 'probe', async () => cursor.writeProbe(block.firstOffset));
  if (readers < 0) throw new ShardGivenBack('this owner was replaced amid a probe');
  if (readers > BLOCK_READERS_MAX) {
    await buryBlock(
      shard,
      block,
      'kills_reader',
      `${readers - 1} workers ended while they were decoding this block`,
    );
  }
  const decoded = readers > BLOCK_READERS_MAX ? undefined : await readBlock(shard, block);
  if (decoded !== undefined) {
    new PlanRows(cursor, plan, [{ block: decoded, firstOffset: block.firstOffset }], []).encode({
      from: block.firstOffset,
      to: block.firstOffset + block.rows,
    });
  }
  await retry(shard, 'probe', async () => cursor.clearProbe());
  return decoded;
}

/** Decodes one block with all its columns. Undefined when it is damaged, and buried. */
async function readBlock(shard: Shard, block: StreamBlock): Promise<DecodedBlock | undefined> {
  passFailpoint('W2.decode', String(block.firstOffset));
  const decoded = block.damage === undefined ? tryDecode(block.block) : block.damage;
  if (typeof decoded !== 'string') return decoded;
  await buryBlock(shard, block, 'damaged_block', decoded);
  return undefined;
}

/** The block, or what is wrong with it. */
export function tryDecode(block: Buffer): DecodedBlock | string {
  try {
    const decoded = decodeBlock(block);
    // Columns are inflated when they are asked for; a damaged one must not come up amid an insert or a burial.
    for (const id of Object.values(COLUMN)) decoded.column(id);
    const level = decoded.column(COLUMN.level).find((number) => number < 1 || number > LEVEL_MAX);
    if (level !== undefined) return `expected levels from 1 to ${LEVEL_MAX}, got ${level}`;
    return decoded;
  } catch (error) {
    if (error instanceof BlockError || error instanceof RangeError) return error.message;
    throw error;
  }
}
