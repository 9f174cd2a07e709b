import type { Redis } from 'ioredis';
import { shardKeys, shardOf } from '@logpond/db/shard-map';
import type { JudgedLetter, JudgedStores } from './judge.ts';

/** Of every Redis key of a rig. */
export const KEY_PREFIX = 'lp';

/** One shard as Redis has it. `done` and `next` are offsets: `next - done` entries are not stored yet. */
export type ShardState = {
  shard: number;
  epoch: number;
  /** First offset of this epoch. */
  epochFrom: number;
  next: number;
  done: number;
  plan: string | undefined;
  fence: string;
  lease: string | undefined;
  /** What its stream holds, as its budget counts it. */
  heldBytes: number;
  isDraining: boolean;
  /** The server process that it was compared with ClickHouse for. */
  run: string | undefined;
};

/**
 * One shard's accounts in its epoch: at rest `received` is `stored` plus `dead` plus `pending`. Dead letters of
 * earlier epochs are counted too.
 */
export type ShardAccount = {
  shard: number;
  received: number;
  stored: number;
  dead: number;
  pending: number;
};

/** Reads a shard's keys directly, past the product's own code. */
export async function readShardState(redis: Redis, shard: number): Promise<ShardState> {
  const keys = shardKeys(KEY_PREFIX, shard);
  const fields = [
    'epoch',
    'next',
    'ingest:done',
    'ingest:plan',
    'ingest:fence',
    'epochFrom',
    'draining',
    'run',
    'bytesIn',
    'bytesTrimmed',
  ] as const;
  const [epoch, next, done, plan, fence, epochFrom, draining, run, bytesIn, bytesTrimmed] = await redis.hmget(
    keys.state,
    ...fields,
  );
  const lease = (await redis.get(keys.lease('ingest'))) ?? undefined;
  return {
    shard,
    epoch: Number(epoch ?? 0),
    epochFrom: Number(epochFrom ?? 1),
    next: Number(next ?? 1),
    done: Number(done ?? 1),
    plan: plan ?? undefined,
    fence: fence ?? '0',
    lease,
    heldBytes: Number(bytesIn ?? 0) - Number(bytesTrimmed ?? 0),
    isDraining: draining === '1',
    run: run ?? undefined,
  };
}

/** Names the server process that runs now. */
export async function readRunId(redis: Redis): Promise<string | undefined> {
  return /run_id:(\w+)/.exec(await redis.info('server'))?.[1];
}

/** A project's dead letters. */
export async function listLetters(redis: Redis, shards: number, projectId: string): Promise<JudgedLetter[]> {
  const keys = shardKeys(KEY_PREFIX, shardOf(projectId, shards)).dead(projectId);
  const letters = await redis.hgetall(keys.letters);
  return Promise.all(
    Object.entries(letters).map(async ([id, text]) => {
      type Stored = { firstOffset: number; entries: number; isReadable: boolean };
      const { firstOffset, entries, isReadable } = JSON.parse(text) as Stored;
      const payload = isReadable ? ((await redis.hget(keys.payloads, id)) ?? '') : undefined;
      return { id, firstOffset, entries, payload };
    }),
  );
}

/** Entries in all dead letters of a shard, those of unknown projects too. */
async function countDeadEntries(redis: Redis, shard: number): Promise<number> {
  const pattern = shardKeys(KEY_PREFIX, shard).dead('*').letters;
  let entries = 0;
  for (const key of await redis.keys(pattern)) {
    for (const text of await redis.hvals(key)) entries += (JSON.parse(text) as { entries: number }).entries;
  }
  return entries;
}

/** Counts what these shards received and where it is now. */
export async function readAccounts(
  redis: Redis,
  selectRows: JudgedStores['selectRows'],
  states: readonly ShardState[],
): Promise<ShardAccount[]> {
  const counts = await selectRows<{ shard: number; epoch: string; rows: string }>(
    'SELECT shard, bitShiftRight(seq, 48) AS epoch, count() AS rows FROM logs GROUP BY shard, epoch',
  );
  return Promise.all(
    states.map(async ({ shard, epoch, epochFrom, next, done }) => {
      const own = counts.find((count) => count.shard === shard && Number(count.epoch) === epoch);
      const dead = await countDeadEntries(redis, shard);
      const stored = Number(own?.rows ?? 0);
      return { shard, received: next - epochFrom, stored, dead, pending: next - done };
    }),
  );
}
