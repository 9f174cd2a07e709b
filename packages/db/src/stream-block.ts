import { decodeBlock, readBlockHeader } from '@logpond/log-block/decode';
import { BlockError } from '@logpond/log-block/layout';
import type { RunSummary } from '@logpond/log-block/layout';
import { mapRedisError } from './connect.ts';
import type { RedisClient } from './connect.ts';
import type { RuleChange } from './rule-change.ts';
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

/** A change of rules as it lies in the stream, between the entries before and after it. */
export type StreamControl = {
  /** Its number in the shard, from 1 on. */
  number: number;
  /** Undefined when it cannot be read. */
  change: RuleChange | undefined;
};

/** A part of a stream: ids as XRANGE takes them, and how many wanted at most. */
export type StreamPart = { start: string; end: string; count: number };

type Keys = Pick<ShardKeys, 'log' | 'state'>;

/** `major` is an offset; `minor` is 0 for a block, else the number of a change of rules. */
type RawEntry = { id: string; major: number; minor: number; fields: ReadonlyMap<string, Buffer> };

/**
 * Blocks of a shard in order, stepping over changes of rules. One whose header is damaged is among them: what it
 * spans follows from the offsets around it, as they are dense. Fewer than `count`: the stream, or the part, ends.
 *
 * @throws {StoreError} `unavailable`.
 */
export async function readBlocks(client: RedisClient, keys: Keys, part: StreamPart): Promise<StreamBlock[]> {
  const blocks: StreamBlock[] = [];
  let { start } = part;
  while (blocks.length < part.count) {
    const count = part.count - blocks.length;
    const entries = await readRaw(client, keys, { ...part, start, count });
    const places = entries.flatMap(({ minor }, index) => (minor === 0 ? [index] : []));
    blocks.push(
      ...(await Promise.all(places.map(async (index) => parseEntry(client, keys, entries, index)))),
    );
    if (entries.length < count) break;
    start = `(${entries.at(-1)?.id ?? start}`;
  }
  return blocks;
}

/**
 * Blocks and changes of rules of a shard in order, as many as there are up to `count`.
 *
 * @throws {StoreError} `unavailable`.
 */
export async function readStream(
  client: RedisClient,
  keys: Keys,
  part: StreamPart,
): Promise<(StreamBlock | StreamControl)[]> {
  const entries = await readRaw(client, keys, part);
  return Promise.all(
    entries.map(async ({ minor, fields }, index) => {
      if (minor === 0) return parseEntry(client, keys, entries, index);
      return { number: minor, change: parseChange(fields.get('rules')) };
    }),
  );
}

function parseChange(text: Buffer | undefined): RuleChange | undefined {
  try {
    return JSON.parse(String(text)) as RuleChange;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

async function readRaw(client: RedisClient, keys: Keys, part: StreamPart): Promise<RawEntry[]> {
  try {
    const answer = await client.xrangeBuffer(keys.log, part.start, part.end, 'COUNT', part.count);
    return answer.map(([id, fields]) => ({ ...readId(id), fields: readFields(fields) }));
  } catch (error) {
    throw mapRedisError(error);
  }
}

async function parseEntry(
  client: RedisClient,
  keys: Keys,
  entries: readonly RawEntry[],
  index: number,
): Promise<StreamBlock> {
  const entry = entries[index];
  if (entry === undefined) throw new RangeError(`expected an index below ${entries.length}, got ${index}`);
  const next = entries[index + 1];
  const nextOffset = next === undefined ? undefined : readEnd(next);
  const parsed = parseBlock(entry, nextOffset);
  if (parsed !== undefined) return parsed;
  return describeDamage(entry, nextOffset ?? (await findNextOffset(client, keys, entry.major)));
}

/** Where what lies before an entry ends: a change of rules carries the last offset given out before it. */
function readEnd({ major, minor }: { major: number; minor: number }): number {
  return minor === 0 ? major : major + 1;
}

/** Fields by name: a block that was put there by hand may have none. */
function takeBlock({ major, fields }: RawEntry): Pick<StreamBlock, 'firstOffset' | 'block' | 'digest'> {
  return {
    firstOffset: major,
    block: fields.get('b') ?? Buffer.alloc(0),
    digest: fields.get('d') ?? Buffer.alloc(0),
  };
}

/** Undefined when the header is damaged; `nextOffset` is where the block behind it begins, if that is known. */
function parseBlock(raw: RawEntry, nextOffset: number | undefined): StreamBlock | undefined {
  const entry = takeBlock(raw);
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

function describeDamage(raw: RawEntry, nextOffset: number): StreamBlock {
  const entry = takeBlock(raw);
  const rows = nextOffset - entry.firstOffset;
  const damage = `expected a block of ${rows} entries at ${entry.firstOffset}, got ${entry.block.length} bytes with another header`;
  return { ...entry, rows, rawBytes: entry.block.length, runs: [], damage };
}

async function findNextOffset(client: RedisClient, keys: Keys, firstOffset: number): Promise<number> {
  try {
    const [behind] = await client.xrangeBuffer(keys.log, `(${firstOffset}-0`, '+', 'COUNT', 1);
    if (behind !== undefined) return readEnd(readId(behind[0]));
    return Number(await client.hget(keys.state, 'next'));
  } catch (error) {
    throw mapRedisError(error);
  }
}

function readId(id: Buffer): { id: string; major: number; minor: number } {
  const text = id.toString('latin1');
  const [major = 0, minor = 0] = text.split('-').map(Number);
  return { id: text, major, minor };
}

function readFields(fields: readonly Buffer[]): ReadonlyMap<string, Buffer> {
  const values = new Map<string, Buffer>();
  for (let at = 0; at + 1 < fields.length; at += 2) {
    values.set(fields[at]?.toString('latin1') ?? '', fields[at + 1] ?? Buffer.alloc(0));
  }
  return values;
}
