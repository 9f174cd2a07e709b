import { connectRedis } from '@logpond/db/connect';
import type { RedisSettings, RedisStore } from '@logpond/db/connect';
import { RedisScript } from '@logpond/db/redis-script';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { countReplicas, RedisServers } from '../system/support/redis-topology.ts';
import type { RedisServer } from '../system/support/redis-topology.ts';

const KEY = 'lp:{x}:count';
const UNAVAILABLE = { name: 'StoreError', kind: 'unavailable' };
const countScript = new RedisScript('../../../tests/store/redis-count.lua');

let servers: RedisServers;
let primary: RedisServer;
let replica: RedisServer;
let redis: RedisStore;

function settings(): RedisSettings {
  const { url } = primary.process;
  return { REDIS_URL: url, KEY_PREFIX: 'lp', SHARDS: 1, REDIS_BUDGET_BYTES: 16_777_216 };
}

beforeAll(async () => {
  servers = await RedisServers.open();
  primary = await servers.add([]);
  replica = await servers.add([`replicaof 127.0.0.1 ${primary.port}`]);
  await waitFor('the replica', async () => countReplicas(primary, 1));
});
afterAll(async () => servers[Symbol.asyncDispose]());
beforeEach(async () => {
  redis = await connectRedis(settings());
  return async () => redis[Symbol.asyncDispose]();
});

describe('a script that replicas must hold', () => {
  it('runs once where it is not known yet: behind NOSCRIPT the answer of WAIT does not count', async () => {
    const before = Number(await countScript.runReplicated(redis.client, [KEY], [], 1));
    await primary.control.script('FLUSH');
    expect(await countScript.runReplicated(redis.client, [KEY], [], 1)).toBe(before + 1);
    expect(await countScript.runReplicated(redis.client, [KEY], [], 1)).toBe(before + 2);
    expect(await replica.control.get(KEY)).toBe(String(before + 2));
  });

  it('is unavailable when too few hold it, and is not sent again before they are back', async () => {
    const before = Number(await countScript.runReplicated(redis.client, [KEY], [], 1));
    replica.process.child.kill('SIGSTOP');
    try {
      const send = async (): Promise<unknown> => countScript.runReplicated(redis.client, [KEY], [], 1);
      await expect(send()).rejects.toMatchObject(UNAVAILABLE);
      for (let turn = 0; turn < 3; turn += 1) await expect(send()).rejects.toMatchObject(UNAVAILABLE);
      // Blocks would pile up behind WAITs that run one after another.
      expect(Number(await primary.control.get(KEY))).toBe(before + 1);
      replica.process.child.kill('SIGCONT');
      await waitFor('the replica to be back', send);
      expect(await countScript.runReplicated(redis.client, [KEY], [], 1)).toBe(before + 3);
    } finally {
      replica.process.child.kill('SIGCONT');
    }
  });
});

describe('a start', () => {
  it('refuses a replica with settings that a primary may not have: one day it is the primary', async () => {
    await replica.control.config('SET', 'appendfsync', 'everysec');
    const problem = `replica 127.0.0.1:${replica.port} appendfsync: expected always, got everysec`;
    await expect(connectRedis(settings())).rejects.toThrow(problem);
    await replica.control.config('SET', 'appendfsync', 'always');
  });

  it('refuses a list of servers that REDIS_MODE does not say to be one installation', async () => {
    const list = { ...settings(), REDIS_URL: `${primary.process.url},${replica.process.url}` };
    await expect(connectRedis(list)).rejects.toThrow(
      'REDIS_URL: expected one URL while REDIS_MODE is single',
    );
  });
});
