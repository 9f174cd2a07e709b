import { describe, expect, it } from 'vitest';
import type { RedisStore } from '@logpond/db/connect';
import type { LogStream } from '@logpond/db/log-stream';
import { shardKeys } from '@logpond/db/shard-map';
import { readTailRange, ShardTail } from '@logpond/db/tail';
import { waitFor } from '../support/wait.ts';
import { beginEachTest, makeBlock, OTHER, PROJECT } from './stream-fixture.ts';

let redis: RedisStore;
let stream: LogStream;

beginEachTest((begun) => ({ redis, stream } = begun));

describe('tail', () => {
  const received = (): { offsets: number[]; gaps: [number, number][]; open: () => Promise<ShardTail> } => {
    const offsets: number[] = [];
    const gaps: [number, number][] = [];
    const listener = {
      onBlock: (_epoch: number, { firstOffset }: { firstOffset: number }) => void offsets.push(firstOffset),
      onGap: (from: number, to: number) => void gaps.push([from, to]),
      onError: () => {},
    };
    return { offsets, gaps, open: async () => ShardTail.open(redis, 0, listener) };
  };

  it('publishes the blocks of watched projects only, in stream order', async () => {
    const seen = received();
    await using tail = await seen.open();
    await stream.admit(0, makeBlock(2));
    expect(await tail.watch(PROJECT)).toEqual({ epoch: 1, nextOffset: 3 });
    await stream.admit(0, makeBlock(2, OTHER));
    for (let i = 0; i < 20; i += 1) await stream.admit(0, makeBlock(2));
    await waitFor('20 blocks', () => seen.offsets.length === 20);
    expect(seen.offsets).toEqual(Array.from({ length: 20 }, (_, i) => 5 + 2 * i));
    expect(seen.gaps).toEqual([]);
  });

  it('F39: a subscriber that Redis dropped gets what it missed from the stream, once and in order', async () => {
    const seen = received();
    await using tail = await seen.open();
    await tail.watch(PROJECT);
    await stream.admit(0, makeBlock(1));
    await waitFor('the first block', () => seen.offsets.length === 1);
    await redis.client.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    for (let i = 0; i < 50; i += 1) await stream.admit(0, makeBlock(1));
    await waitFor('all blocks', async () => {
      // Something has to come after the hole for it to be noticed at once.
      if (seen.offsets.length < 51) await stream.admit(0, makeBlock(1));
      return seen.offsets.length >= 51;
    });
    expect(seen.offsets).toEqual(seen.offsets.map((_, index) => index + 1));
    expect(seen.gaps).toEqual([]);
  });

  it('notices a lost last message by itself', async () => {
    const seen = received();
    await using tail = await seen.open();
    await tail.watch(PROJECT);
    await redis.client.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await stream.admit(0, makeBlock(1));
    await waitFor('the block', () => seen.offsets.length === 1);
    expect(seen.offsets).toEqual([1]);
  });

  it('tells of a hole that the stream does not hold any more', async () => {
    const seen = received();
    await using tail = await seen.open();
    await tail.watch(PROJECT);
    const { log, tailed } = shardKeys(redis.prefix, 0);
    await redis.client.hset(tailed, PROJECT, '0');
    for (let i = 0; i < 5; i += 1) await stream.admit(0, makeBlock(1));
    await redis.client.xtrim(log, 'MINID', '4-0');
    await waitFor('the rest', () => seen.offsets.length === 2);
    expect(seen.offsets).toEqual([4, 5]);
    expect(seen.gaps).toEqual([[1, 4]]);
  });

  it('reads a range from the middle of a block on', async () => {
    for (const rows of [10, 10]) await stream.admit(0, makeBlock(rows));
    const range = await readTailRange(redis, 0, 5, 21);
    expect(range.firstOffset).toBe(5);
    expect(range.blocks.map(({ firstOffset }) => firstOffset)).toEqual([1, 11]);
  });
});
