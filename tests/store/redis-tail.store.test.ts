import { TailHub } from '@logpond/api/tail-hub';
import type { RedisStore } from '@logpond/db/connect';
import type { LogStream } from '@logpond/db/log-stream';
import { shardKeys } from '@logpond/db/shard-map';
import { ShardTail } from '@logpond/db/tail';
import { encodeEntryId } from '@logpond/log-block/entry-id';
import { createLog } from '@logpond/runtime/log';
import { describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { EVERYTHING } from './log-store-fixture.ts';
import { beginEachTest, makeBlock, PROJECT } from './stream-fixture.ts';
import type { StreamFixture } from './stream-fixture.ts';

type Seen = string[];

let fixture: StreamFixture;
let redis: RedisStore;
let stream: LogStream;

beginEachTest((begun) => ({ fixture, redis, stream } = begun));

/** A tail that writes down what it is given: `epoch:offset`, and `gap epoch:from-to`. */
async function openTail(seen: Seen): Promise<ShardTail> {
  return ShardTail.open(redis, 0, {
    onBlock: (epoch, { firstOffset }) => void seen.push(`${epoch}:${firstOffset}`),
    onGap: (from, to, epoch) => void seen.push(`gap ${epoch}:${from}-${to}`),
    onError: (error) => void seen.push(String(error)),
  });
}

/** Puts a block on the stream whose bytes are none, as admit would. */
async function admitDamaged(rows: number): Promise<void> {
  const keys = shardKeys(redis.prefix, 0);
  const first = String(await fixture.raw.hget(keys.state, 'next'));
  await fixture.raw.xadd(keys.log, `${first}-0`, 'b', 'rust', 'd', 'rust');
  await fixture.raw.hincrby(keys.state, 'next', rows);
  const before = String(await fixture.raw.hget(keys.tailed, 'last'));
  await fixture.raw.hset(keys.tailed, 'last', first);
  await fixture.raw.spublish(keys.tailChannel, `${before} ${first} 1\nrust`);
}

describe('F33: a damaged block', () => {
  it('is told as a gap, and the tail goes on behind it', async () => {
    const seen: Seen = [];
    await using tail = await openTail(seen);
    await tail.watch(PROJECT);
    await stream.admit(0, makeBlock(2));
    await admitDamaged(3);
    await stream.admit(0, makeBlock(1));
    await waitFor('the block behind it', () => seen.includes('1:6'));
    expect(seen).toEqual(['1:1', 'gap 1:3-6', '1:6']);
  });

  it('is told as a gap to a reader that comes back, who then gets what lies behind it', async () => {
    await stream.admit(0, makeBlock(1));
    await admitDamaged(3);
    await stream.admit(0, makeBlock(1));
    await using hub = new TailHub({ redis, log: createLog('test', 'silent') });
    const lastEventId = encodeEntryId(0n, { epoch: 1, offset: 1, shard: 0 });
    const { signal } = new AbortController();
    const request = { projectId: PROJECT, filter: EVERYTHING, withProjectId: false, signal, lastEventId };
    const events: string[] = [];
    const answer = await hub.open(request);
    void (async () => {
      for await (const bytes of answer) {
        for (const [, event = ''] of Buffer.from(bytes)
          .toString()
          .matchAll(/^event: (\w+)/gm))
          events.push(event);
      }
    })();
    await waitFor('the entry behind it', () => events.includes('log'));
    expect(events.filter((event) => event !== 'heartbeat')).toEqual(['gap', 'log']);
  });
});

describe('a new epoch', () => {
  it('is told as one gap, and nothing below its first offset is given under it', async () => {
    const seen: Seen = [];
    await using tail = await openTail(seen);
    await tail.watch(PROJECT);
    await stream.admit(0, makeBlock(4));
    await waitFor('the first block', () => seen.length === 1);
    await fixture.raw.hset(shardKeys(redis.prefix, 0).state, 'epoch', 2, 'epochFrom', 5);
    await stream.admit(0, makeBlock(1));
    await stream.admit(0, makeBlock(1));
    await waitFor('both blocks', () => seen.includes('2:6'));
    expect(seen).toEqual(['1:1', 'gap 2:5-5', '2:5', '2:6']);
  });
});

describe('a stream under pressure', () => {
  it('publishes nothing, its readers are told of a gap, and go on when it is over', async () => {
    const seen: Seen = [];
    await using tail = await openTail(seen);
    await tail.watch(PROJECT);
    const { state, log } = shardKeys(redis.prefix, 0);
    const pressed = Math.floor(268_435_456 * 0.57);
    await fixture.raw.hset(state, 'bytesIn', pressed);
    for (let turn = 0; turn < 3; turn += 1) await stream.admit(0, makeBlock(2));
    // Not read from the stream either: a read would find that these are not there, and tell another gap.
    await fixture.raw.xtrim(log, 'MAXLEN', 1);
    await waitFor('the gap', () => seen.length > 0);
    expect(seen).toEqual(['gap 1:1-7']);
    await fixture.raw.hset(state, 'bytesTrimmed', pressed);
    await stream.admit(0, makeBlock(2));
    await waitFor('a block', () => seen.length > 1);
    expect(seen).toEqual(['gap 1:1-7', '1:7']);
    expect(await fixture.raw.hget(state, 'shed')).toBeNull();
  });
});
