import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AlertWindows } from '@logpond/db/alert-windows';
import { connectRedis } from '@logpond/db/connect';
import type { RedisSettings, RedisStore } from '@logpond/db/connect';
import type { Consumer } from '@logpond/db/shard-map';
import type { Ownership } from '@logpond/db/log-cursor';
import { LogStream } from '@logpond/db/log-stream';
import { readRanges } from '@logpond/db/offset-range';
import { prepareShards } from '@logpond/db/prepare';
import { RedisScript } from '@logpond/db/redis-script';
import { shardKeys } from '@logpond/db/shard-map';
import { BlockEncoder } from '@logpond/log-block/encode';
import type { EncodedBlock } from '@logpond/log-block/encode';
import { spawnRedis } from '@logpond/standalone/redis';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, expect } from 'vitest';

export const PROJECT = '0190a5e0-0000-7000-8000-000000000001';
export const OTHER = '0190a5e0-0000-7000-8000-000000000002';
export const NOW_MS = 1_790_000_000_000;
export const WIDE = { rowsMax: 1e6, bytesMax: 1e6, rawBytesMax: 1e6 };

const ownScript = new RedisScript('log-stream.lua/own.lua');

/** One shard on a redis-server of the test file's own; each `begin` has keys of its own. */
export class StreamFixture implements AsyncDisposable {
  readonly dataDir: string;
  /** Looks behind the product's back. */
  readonly raw: Redis;
  #server: Awaited<ReturnType<typeof spawnRedis>>;
  #prefixes = 0;

  private constructor(dataDir: string, server: Awaited<ReturnType<typeof spawnRedis>>) {
    this.dataDir = dataDir;
    this.#server = server;
    this.raw = new Redis(server.url, { retryStrategy: () => 50, maxRetriesPerRequest: null });
    this.raw.on('error', () => {});
  }

  static async open(): Promise<StreamFixture> {
    const dataDir = await mkdtemp(join(tmpdir(), 'logpond-stream-'));
    return new StreamFixture(dataDir, await spawnRedis({ dataDir }));
  }

  settings(budgetBytes = 268_435_456): RedisSettings {
    return {
      REDIS_URL: this.#server.url,
      REDIS_MODE: 'single',
      REDIS_SENTINEL_NAME: 'mymaster',
      REDIS_WAIT_REPLICAS: 0,
      REPLAY_WINDOW_MS: 900_000,
      KEY_PREFIX: `t${this.#prefixes}`,
      SHARDS: 1,
      REDIS_BUDGET_BYTES: budgetBytes,
    };
  }

  /** A prepared shard without entries, under a prefix of its own. */
  async begin(budgetBytes?: number): Promise<{ redis: RedisStore; stream: LogStream }> {
    this.#prefixes += 1;
    const redis = await connectRedis(this.settings(budgetBytes));
    await prepareShards(redis, async () => new Map());
    return { redis, stream: await LogStream.open(redis) };
  }

  /** Ends the server as a crash does and starts it again on the same port and directory. */
  async restartRedis(): Promise<void> {
    const { child, url, port } = this.#server;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await gone;
    this.#server = await spawnRedis({ dataDir: this.dataDir, port, password: new URL(url).password });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.raw.disconnect();
    await this.#server.stop();
    await rm(this.dataDir, { recursive: true });
  }
}

/** A fixture for the file; each test is given it with a shard of its own, begun and closed again after it. */
export function beginEachTest(
  give: (begun: { fixture: StreamFixture; redis: RedisStore; stream: LogStream }) => void,
): void {
  let fixture: StreamFixture;
  beforeAll(async () => {
    fixture = await StreamFixture.open();
  });
  afterAll(async () => fixture[Symbol.asyncDispose]());
  beforeEach(async () => {
    const begun = await fixture.begin();
    give({ fixture, ...begun });
    return async () => begun.redis[Symbol.asyncDispose]();
  });
}

export function makeBlock(rows: number, projectId = PROJECT, padding = ''): EncodedBlock {
  const encoder = new BlockEncoder();
  encoder.beginRun(projectId, NOW_MS);
  for (let row = 0; row < rows; row += 1) {
    const entry = {
      timeNs: BigInt(NOW_MS) * 1_000_000n,
      level: 2,
      service: 'web',
      message: `entry ${row}${padding}`,
    };
    encoder.appendEntry({ ...entry, metadataJson: '{}' });
  }
  encoder.endRun(rows * 100);
  return encoder.finish(NOW_MS);
}

/** The alert worker has read shard 0 up to here, and counted nothing. */
export async function passAlertCursor(redis: RedisStore, done: number): Promise<void> {
  const windows = await AlertWindows.open(redis, await forceOwnership(redis, 'alert'));
  const nothing = { changes: [], resets: new Set<string>(), windows: new Map(), outbox: [] };
  expect(await windows.count({ to: { done, controls: 0 }, ...nothing })).toBe(true);
}

/** Takes shard 0 as if no lease were there: what a worker does whose clock or pause made the lease lie. */
export async function forceOwnership(
  redis: RedisStore,
  consumer: Consumer = 'ingest',
  holder = 'test',
): Promise<Ownership> {
  const keys = shardKeys(redis.prefix, 0);
  await redis.client.del(keys.lease(consumer));
  const args = [consumer, holder, 60_000];
  const answer = (await ownScript.run(redis.client, [keys.lease(consumer), keys.state], args)) as string[];
  const [kind, fence = '', epoch, done, plan, tries, draining, buried = ''] = answer.map(String);
  expect(kind).toBe('taken');
  return {
    shard: 0,
    fence,
    epoch: Number(epoch),
    done: Number(done),
    plan: plan || undefined,
    planTries: Number(tries),
    buried: readRanges(buried),
    isDraining: draining === '1',
  };
}
