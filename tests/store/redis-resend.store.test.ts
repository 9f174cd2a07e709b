import { RedisStore } from '@logpond/db/connect';
import { RedisScript } from '@logpond/db/redis-script';
import { findFreePort } from '@logpond/standalone/store-process';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { ChaosProxy } from '../system/support/chaos-proxy.ts';
import { RedisServers } from '../system/support/redis-topology.ts';
import type { RedisServer } from '../system/support/redis-topology.ts';

const KEY = 'lp:{x}:count';
/** The client's own retries come at once or after 0.1 s. */
const RESEND_WINDOW_MS = 600;

const countScript = new RedisScript('../../../tests/store/redis-count.lua');

describe.each(['single', 'cluster'] as const)('F19: Redis as %s', (mode) => {
  let servers: RedisServers;
  let server: RedisServer;
  let proxy: ChaosProxy;
  let store: RedisStore;

  beforeAll(async () => {
    servers = await RedisServers.open();
    const port = await findFreePort();
    proxy = await ChaosProxy.open(port);
    // A node tells its clients to come through the proxy.
    const announced = [`cluster-announce-ip 127.0.0.1`, `cluster-announce-port ${proxy.port}`];
    const isCluster = mode === 'cluster';
    server = await servers.add(isCluster ? ['cluster-enabled yes', ...announced] : [], port);
    if (isCluster) {
      await server.control.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16_383);
      await waitFor('the cluster', async () =>
        String(await server.control.cluster('INFO')).includes('cluster_state:ok'),
      );
    }
    store = new RedisStore({
      REDIS_MODE: mode,
      REDIS_URL: proxy.redirect(server.process.url),
      KEY_PREFIX: 'lp',
      SHARDS: 1,
      REDIS_BUDGET_BYTES: 16_777_216,
    });
    await store.assertUsable();
    await countScript.run(store.client, [KEY], []);
  });
  afterAll(async () => {
    await store?.[Symbol.asyncDispose]();
    await proxy?.[Symbol.asyncDispose]();
    await servers?.[Symbol.asyncDispose]();
  });

  it.each([
    ['a command', async () => store.client.incr(KEY)],
    ['a script', async () => countScript.run(store.client, [KEY], [])],
    ['a script with its WAIT', async () => countScript.runReplicated(store.client, [KEY], [], 1)],
  ])('%s whose answer is cut off is not sent again', async (_, send) => {
    await waitFor('the connection', async () => (await store.client.get(KEY)) !== null);
    const before = Number(await server.control.get(KEY));
    const sprung = proxy.arm({ pattern: KEY, at: 'reply', action: async () => Promise.resolve('drop') });
    await expect(send()).rejects.toThrow(/closed|cut|not do it|aborted|retries/);
    await sprung;
    await waitFor('the connection', async () => (await store.client.get(KEY)) !== null);
    const isRepeated = async (): Promise<boolean> => Number(await server.control.get(KEY)) > before + 1;
    await expect(waitFor('a second one', isRepeated, RESEND_WINDOW_MS)).rejects.toThrow('a second one');
    expect(Number(await server.control.get(KEY))).toBe(before + 1);
  });
});
