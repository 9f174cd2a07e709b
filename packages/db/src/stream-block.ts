import { decodeBlock, readBlockHeader } from '@logpond/log-block/decode';
import { BlockError } from '@logpond/log-block/layout';
import type { RunSummary } from '@logpond/log-block/layout';
import { mapRedisError } from './connect.ts';
import type { RedisClient } from './connect.ts';
import type { ShardKeys } from './shard-map.ts';

/** One block as it lies in the stream. */
export type StreamBlock = {
  /** Offset of its first entry. */
  firstOffset: number;
  rows: number;
  /** What the block's columns take when they are inflated. */
  rawBytes: number;
  /** None when it is damaged. */
  runs: readonly RunSummary[];
  block: Buffer;
  digest: Buffer;
  /** Why its header cannot be believed; its rows are then counted up to the next block. */
  damage?: string;
};

type Entry = { firstOffset: number; block: Buffer; digest: Buffer };

/** A part of a stream: ids as XRANGE takes them, and the blocks wanted at most. */
export type BlockRange = { start: string; end: string; count: number };

/**
 * Blocks of a shard in order. One whose header is damaged is among them: what it spans follows from the offsets
 * around it, as they are dense.
 *
 * @throws {StoreError} `unavailable`.
 */
export async function readBlocks(
  client: RedisClient,
  keys: Pick<ShardKeys, 'log' | 'state'>,
  range: BlockRange,
): Promise<StreamBlock[]> {
  try {
    const answer = await client.xrangeBuffer(keys.log, range.start, range.end, 'COUNT', range.count);
    const entries = answer.map(([id, fields]) => readEntry(id, fields));
    return await Promise.all(
      entries.map(async (entry, index) => {
        const next = entries[index + 1];
        const parsed = parseBlock(entry, next?.firstOffset);
        if (parsed !== undefined) return parsed;
        return describeDamage(entry, next?.firstOffset ?? (await findNextOffset(client, keys, entry)));
      }),
    );
  } catch (error) {
    throw error instanceof BlockError ? error : mapRedisError(error);
  }
}

/** Undefined when the header is damaged; `nextOffset` is where the block behind it begins, if that is known. */
function parseBlock(entry: Entry, nextOffset: number | undefined): StreamBlock | undefined {
  try {
    const { rows, rawBytes, runs } = readBlockHeader(entry.block);
    // When header and CRC agree the header is right, and what is wrong is the stream: it has a hole.
    if (nextOffset !== undefined && entry.firstOffset + rows !== nextOffset) decodeBlock(entry.block);
    return { ...entry, rows, rawBytes, runs };
  } catch (error) {
    if (error instanceof BlockError || error instanceof RangeError) return undefined;
    throw error;
  }
}

function describeDamage(entry: Entry, nextOffset: number): StreamBlock {
  const rows = nextOffset - entry.firstOffset;
  const damage = `expected a block of ${rows} entries at ${entry.firstOffset}, got ${entry.block.length} bytes with another header`;
  return { ...entry, rows, rawBytes: entry.block.length, runs: [], damage };
}

async function findNextOffset(
  client: RedisClient,
  keys: Pick<ShardKeys, 'log' | 'state'>,
  { firstOffset }: Entry,
): Promise<number> {
  const [behind] = await client.xrangeBuffer(keys.log, `(${firstOffset}-0`, '+', 'COUNT', 1);
  if (behind !== undefined) return Number.parseInt(behind[0].toString('latin1'), 10);
  return Number(await client.hget(keys.state, 'next'));
}

/** Fields by name: a block that was put there by hand may have none. */
function readEntry(id: Buffer, fields: readonly Buffer[]): Entry {
  const values = new Map<string, Buffer>();
  for (let at = 0; at + 1 < fields.length; at += 2) {
    values.set(fields[at]?.toString('latin1') ?? '', fields[at + 1] ?? Buffer.alloc(0));
  }
  return {
    firstOffset: Number.parseInt(id.toString('latin1'), 10),
    block: values.get('b') ?? Buffer.alloc(0),
    digest: values.get('d') ?? Buffer.alloc(0),
  };
}
