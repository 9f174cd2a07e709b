import { describe, expect, it } from 'vitest';
import type { RedisStore } from '@logpond/db/connect';
import type { LogStream } from '@logpond/db/log-stream';
import { LogCursor } from '@logpond/db/log-cursor';
import { prepareShards } from '@logpond/db/prepare';
import { shardKeys } from '@logpond/db/shard-map';
import { encodeSeq } from '@logpond/log-block/entry-id';
import { waitFor } from '../support/wait.ts';
import { beginEachTest, forceOwnership, makeBlock, NOW_MS, WIDE } from './stream-fixture.ts';
import type { StreamFixture } from './stream-fixture.ts';

let fixture: StreamFixture;
let redis: RedisStore;
let stream: LogStream;

beginEachTest((begun) => ({ fixture, redis, stream } = begun));

const admitOne = async (): Promise<string> => (await stream.admit(0, makeBlock(1))).kind;

async function readState(...fields: string[]): Promise<(string | null)[]> {
  return redis.client.hmget(shardKeys(redis.prefix, 0).state, ...fields);
}

async function prepare(epoch: number, offset: number): Promise<string | undefined> {
  const [shard] = await prepareShards(redis, async () => new Map([[0, encodeSeq(epoch, offset)]]));
  return shard?.state;
}

describe('the epoch of a shard', () => {
  it('is one above what ClickHouse holds when Redis is empty, and stays while Redis is ahead', async () => {
    expect(await prepare(1, 0)).toBe('ready');
    await redis.client.del(shardKeys(redis.prefix, 0).state);
    expect(await prepare(41, 7)).toBe('begun');
    expect(await readState('epoch', 'next')).toEqual(['42', '1']);
  });

  it('a Redis behind ClickHouse admits nothing, gives what it holds to be stored, then goes on in the next epoch', async () => {
    for (const rows of [3, 2]) await stream.admit(0, makeBlock(rows));
    expect(await prepare(1, 5)).toBe('ready');
    expect(await prepare(1, 6)).toBe('draining');
    await expect(admitOne()).rejects.toMatchObject({ kind: 'unavailable' });
    const ownership = await forceOwnership(redis);
    expect(ownership).toMatchObject({ isDraining: true, epoch: 1, done: 1 });
    using cursor = await LogCursor.open(redis, ownership);
    const range = await cursor.read(1, WIDE);
    await cursor.writePlan(1, 'plan');
    expect(await prepare(1, 6)).toBe('draining');
    await cursor.commit('plan', range, NOW_MS);
    expect(await prepare(1, 6)).toBe('renewed');
    expect(await readState('epoch', 'next', 'epochFrom', 'draining')).toEqual(['2', '6', '6', null]);
    expect(await stream.admit(0, makeBlock(1))).toMatchObject({ kind: 'stored', firstOffset: 6 });
  });

  it('an older epoch than ClickHouse knows is left for the one above it', async () => {
    expect(await prepare(7, 1)).toBe('renewed');
    expect(await readState('epoch', 'next')).toEqual(['8', '1']);
  });
});

describe('a Redis that was restarted', () => {
  it('admits nothing and gives no lease until it was compared with ClickHouse', async () => {
    await stream.admit(0, makeBlock(3));
    await fixture.restartRedis();
    await waitFor('the connection', async () => redis.ping());
    await waitFor('a refusal', async () =>
      admitOne().then(
        () => false,
        (error: unknown) => String(error).includes('compared'),
      ),
    );
    await expect(forceOwnership(redis)).rejects.toThrow("'unprepared'");
    expect(await prepare(1, 3)).toBe('ready');
    expect(await admitOne()).toBe('stored');
  });

  it('is not compared by what ClickHouse said before it was restarted', async () => {
    await stream.admit(0, makeBlock(3));
    const prepared = prepareShards(redis, async () => {
      await fixture.restartRedis();
      await waitFor('the connection', async () => redis.ping());
      return new Map();
    });
    await expect(prepared).rejects.toThrow('restarted while it was compared');
    await expect(admitOne()).rejects.toMatchObject({ kind: 'unavailable' });
  });

  it('takes no plan of an owner from before it, neither before nor after the comparison: it may lack what that one read', async () => {
    await stream.admit(0, makeBlock(3));
    const before = await forceOwnership(redis);
    await fixture.restartRedis();
    await waitFor('the connection', async () => redis.ping());
    using cursor = await LogCursor.open(redis, before);
    expect(await cursor.writePlan(1, 'plan')).toBe(false);
    expect(await prepare(1, 0)).toBe('ready');
    expect(await cursor.writePlan(1, 'plan')).toBe(false);
    using successor = await LogCursor.open(redis, await forceOwnership(redis));
    expect(await prepare(1, 0)).toBe('ready');
    expect(await successor.writePlan(1, 'plan')).toBe(true);
  });

  it('gives a fence that no earlier owner has, though its number was given before', async () => {
    const before = await forceOwnership(redis, 'ingest', 'worker-a');
    await redis.client.hdel(shardKeys(redis.prefix, 0).state, 'ingest:fence');
    const after = await forceOwnership(redis, 'ingest', 'worker-b');
    expect(Number.parseInt(before.fence, 10)).toBe(Number.parseInt(after.fence, 10));
    expect(before.fence).not.toBe(after.fence);
  });
});
