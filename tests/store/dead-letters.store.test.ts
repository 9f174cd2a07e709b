import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connectRedis } from '@logpond/db/connect';
import type { RedisStore } from '@logpond/db/connect';
import { DeadLetters } from '@logpond/db/dead-letters';
import type { DeadLetterBurial, DeadLetterContent } from '@logpond/db/dead-letters';
import { shardKeys } from '@logpond/db/shard-map';
import { spawnRedis } from '@logpond/standalone/redis';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';

const PROJECT = '0190a5e0-0000-7000-8000-000000000001';
const OTHER = '0190a5e0-0000-7000-8000-000000000002';
const NOW_MS = 1_790_000_000_000;
const FENCE = '7';

let dataDir: string;
let server: Awaited<ReturnType<typeof spawnRedis>>;
let direct: Redis;
let prefixes = 0;
let redis: RedisStore;
let letters: DeadLetters;
let state: string;

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'logpond-dead-'));
  server = await spawnRedis({ dataDir });
  direct = new Redis(server.url);
});
afterAll(async () => {
  direct.disconnect();
  await server.stop();
  await rm(dataDir, { recursive: true });
});

beforeEach(async () => {
  prefixes += 1;
  redis = await connectRedis({
    REDIS_URL: server.url,
    KEY_PREFIX: `t${prefixes}`,
    SHARDS: 1,
    REDIS_BUDGET_BYTES: 16_777_216,
  });
  letters = new DeadLetters(redis);
  state = shardKeys(redis.prefix, 0).state;
  await direct.hset(state, 'ingest:fence', FENCE);
  return async () => redis[Symbol.asyncDispose]();
});

function makeLetter(rest: Partial<DeadLetterBurial> = {}): DeadLetterBurial {
  return {
    id: '1-0-42-1',
    projectId: PROJECT,
    reason: 'refused_by_store',
    detail: 'code 469: a constraint',
    entries: 1,
    firstOffset: 42,
    createdAtMs: NOW_MS,
    payload: Buffer.from('{"service":"web","level":"info","message":"é"}\n'),
    isReadable: true,
    ...rest,
  };
}

async function readContent(id: string): Promise<DeadLetterContent> {
  const content = await letters.read(PROJECT, id);
  if (content === undefined) throw new Error(`expected a letter ${id}, found none`);
  return content;
}

/** Bytes that the keys of all letters hold in fact, as `deadBytes` counts them. */
async function countBytes(): Promise<number> {
  let bytes = 0;
  for (const projectId of [PROJECT, OTHER, '-']) {
    const keys = shardKeys(redis.prefix, 0).dead(projectId);
    const places = await direct.zrange(keys.order, '0', '-1');
    bytes += places.reduce((sum, place) => sum + Buffer.byteLength(place), 0);
    for (const hash of [keys.letters, keys.payloads]) {
      for (const [id, value] of Object.entries(await direct.hgetallBuffer(hash)))
        bytes += value.length + (hash === keys.letters ? 3 * id.length : 0);
    }
  }
  return bytes;
}

async function readDeadBytes(): Promise<number> {
  return Number(await direct.hget(state, 'deadBytes'));
}

describe('dead letters', () => {
  it('come back as they were buried, to their own project only', async () => {
    expect(await letters.bury(0, FENCE, makeLetter())).toBe('buried');
    const content = await letters.read(PROJECT, '1-0-42-1');
    expect(content).toEqual({
      letter: {
        id: '1-0-42-1',
        projectId: PROJECT,
        reason: 'refused_by_store',
        detail: 'code 469: a constraint',
        entries: 1,
        bytes: makeLetter().payload.length,
        createdAt: new Date(NOW_MS).toISOString(),
      },
      payload: makeLetter().payload,
      isReadable: true,
    });
    expect(await letters.read(OTHER, '1-0-42-1')).toBeUndefined();
    expect(await letters.list(OTHER, { limit: 10 })).toEqual({ deadLetters: [], nextCursor: null });
    expect(await letters.remove(OTHER, '1-0-42-1')).toBe(false);
    expect(await letters.read(PROJECT, '1-0-42-1')).toBeDefined();
  });

  it('raw bytes survive, and those of unknown projects are kept out of every list', async () => {
    const payload = Buffer.from([0, 255, 254, 10, 13, 0, 128]);
    const damaged = { reason: 'damaged_block', payload, isReadable: false } as const;
    await letters.bury(0, FENCE, makeLetter({ ...damaged, id: 'raw' }));
    expect(await letters.read(PROJECT, 'raw')).toMatchObject({ payload, isReadable: false });
    expect(await letters.bury(0, FENCE, makeLetter({ ...damaged, id: 'lost', projectId: null }))).toBe(
      'buried',
    );
    expect((await letters.list(PROJECT, { limit: 10 })).deadLetters.map(({ id }) => id)).toEqual(['raw']);
    expect(await countBytes()).toBe(await readDeadBytes());
  });

  it('a letter buried again after an unknown outcome is there once and stays as it was', async () => {
    await letters.bury(0, FENCE, makeLetter());
    const before = await readDeadBytes();
    expect(await letters.bury(0, FENCE, makeLetter({ createdAtMs: NOW_MS + 5, detail: 'again' }))).toBe(
      'buried',
    );
    const { deadLetters } = await letters.list(PROJECT, { limit: 10 });
    expect(deadLetters.map(({ detail }) => detail)).toEqual(['code 469: a constraint']);
    expect(await readDeadBytes()).toBe(before);
  });

  it('F04: a worker that was replaced buries nothing', async () => {
    await direct.hset(state, 'ingest:fence', '8');
    expect(await letters.bury(0, FENCE, makeLetter())).toBe('replaced');
    expect(await letters.read(PROJECT, '1-0-42-1')).toBeUndefined();
    expect(await letters.bury(0, '8', makeLetter())).toBe('buried');
  });

  it('are bounded by bytes, counted exactly through burials, removals and partial replays', async () => {
    const payload = Buffer.alloc(300_000, 'x');
    const outcomes: string[] = [];
    for (let n = 0; n < 4; n += 1)
      outcomes.push(await letters.bury(0, FENCE, makeLetter({ id: `l${n}`, payload })));
    expect(outcomes).toEqual(['buried', 'buried', 'buried', 'full']);
    expect(await letters.read(PROJECT, 'l3')).toBeUndefined();
    expect(await countBytes()).toBe(await readDeadBytes());
    expect(await letters.remove(PROJECT, 'l1')).toBe(true);
    expect(await letters.remove(PROJECT, 'l1')).toBe(false);
    const { letter } = await readContent('l2');
    expect(await letters.keepOnly(letter, { entries: 1, payload: Buffer.from('{}\n') })).toBe(true);
    expect(await countBytes()).toBe(await readDeadBytes());
    expect(await letters.bury(0, FENCE, makeLetter({ id: 'l3', payload }))).toBe('buried');
    for (const id of ['l0', 'l2', 'l3']) expect(await letters.remove(PROJECT, id)).toBe(true);
    expect([await readDeadBytes(), await countBytes()]).toEqual([0, 0]);
  });

  it('a letter that takes more than all may is kept when it is the only one', async () => {
    const large = makeLetter({ id: 'large', payload: Buffer.alloc(1_100_000) });
    expect(await letters.bury(0, FENCE, large)).toBe('buried');
    expect(await letters.bury(0, FENCE, makeLetter({ id: 'next' }))).toBe('full');
    expect(await letters.remove(PROJECT, 'large')).toBe(true);
    expect(await letters.bury(0, FENCE, makeLetter({ id: 'next' }))).toBe('buried');
    expect(await letters.bury(0, FENCE, large)).toBe('full');
    expect(await countBytes()).toBe(await readDeadBytes());
  });

  it('a letter that went while its plan was open does not come back, another of the same id does', async () => {
    await direct.hset(state, 'ingest:plan', 'a plan');
    expect(await letters.bury(0, FENCE, makeLetter())).toBe('buried');
    expect(await letters.remove(PROJECT, '1-0-42-1')).toBe(true);
    expect(await letters.bury(0, FENCE, makeLetter())).toBe('buried');
    expect(await letters.read(PROJECT, '1-0-42-1')).toBeUndefined();
    expect(await letters.bury(0, FENCE, makeLetter({ projectId: OTHER }))).toBe('buried');
    expect(await letters.read(OTHER, '1-0-42-1')).toBeDefined();
    expect(await countBytes()).toBe(await readDeadBytes());
  });

  it('what is left of a letter replaces it only when nobody changed it meanwhile', async () => {
    await letters.bury(0, FENCE, makeLetter({ entries: 3, payload: Buffer.from('a\nb\nc\n') }));
    const { letter } = await readContent('1-0-42-1');
    expect(await letters.keepOnly(letter, { entries: 2, payload: Buffer.from('a\nb\n') })).toBe(true);
    expect(await letters.keepOnly(letter, { entries: 1, payload: Buffer.from('c\n') })).toBe(false);
    const left = await letters.read(PROJECT, '1-0-42-1');
    expect([left?.letter.entries, left?.letter.bytes, left?.payload.toString()]).toEqual([2, 4, 'a\nb\n']);
  });

  it('are listed newest first, page by page, while others come and go', async () => {
    // Two a millisecond, the ids against the order of time.
    for (const [n, id] of ['g', 'f', 'e', 'd', 'c', 'b', 'a'].entries())
      await letters.bury(0, FENCE, makeLetter({ id, createdAtMs: NOW_MS + Math.floor(n / 2) }));
    const first = await letters.list(PROJECT, { limit: 3 });
    expect(first.deadLetters.map(({ id }) => id)).toEqual(['a', 'c', 'b']);
    await letters.remove(PROJECT, 'b');
    await letters.bury(0, FENCE, makeLetter({ id: 'new', createdAtMs: NOW_MS + 100 }));
    const second = await letters.list(PROJECT, { limit: 3, cursor: first.nextCursor ?? '' });
    expect(second.deadLetters.map(({ id }) => id)).toEqual(['e', 'd', 'g']);
    const third = await letters.list(PROJECT, { limit: 3, cursor: second.nextCursor ?? '' });
    expect([third.deadLetters.map(({ id }) => id), third.nextCursor]).toEqual([['f'], null]);
  });

  it('F13: a Redis at maxmemory still takes a letter and still lets one go', async () => {
    const [, maxmemory] = (await direct.config('GET', 'maxmemory')) as [string, string];
    await direct.config('SET', 'maxmemory', '1mb');
    try {
      await expect(direct.set('probe', 'x')).rejects.toThrow(/^OOM/);
      expect(await letters.bury(0, FENCE, makeLetter())).toBe('buried');
      expect(await letters.remove(PROJECT, '1-0-42-1')).toBe(true);
    } finally {
      await direct.config('SET', 'maxmemory', maxmemory);
    }
  });
});
