import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { mapRedisError, RedisStore } from '@logpond/db/connect';
import { RedisScript } from '@logpond/db/redis-script';
import { StoreError } from '@logpond/db/store-error';
import { findFreePort } from '@logpond/standalone/store-process';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { countReplicas, RedisServers } from '../system/support/redis-topology.ts';
import type { RedisServer } from '../system/support/redis-topology.ts';

const KEY = 'lp:{x}:count';
const countScript = new RedisScript('../../../tests/store/redis-count.lua');

let servers: RedisServers;
beforeAll(async () => {
  servers = await RedisServers.open();
});
afterAll(async () => servers[Symbol.asyncDispose]());

/** What a script that writes says on this server. */
async function failOn(server: RedisServer): Promise<unknown> {
  const shared = { KEY_PREFIX: 'lp', SHARDS: 1, REDIS_BUDGET_BYTES: 16_777_216 };
  await using store = new RedisStore({ REDIS_URL: server.process.url, ...shared });
  await waitFor('the connection', () => store.client.status === 'ready');
  return await countScript.run(store.client, [KEY], []).catch((error: unknown) => error);
}

/** A StoreError that says so. */
function unavailable(code: string): Record<string, unknown> {
  const message = expect.stringContaining(`; ${code} `) as unknown;
  return { name: 'StoreError', kind: 'unavailable', store: 'redis', message };
}

it('memory at its limit is unavailable (OOM)', async () => {
  const server = await servers.add(['maxmemory 1mb']);
  await server.control.config('SET', 'maxmemory', '1');
  expect(await failOn(server)).toMatchObject(unavailable('OOM'));
});

it('a failed snapshot is unavailable (MISCONF)', async () => {
  const port = await findFreePort();
  // The snapshot cannot take the place of a directory.
  await mkdir(join(servers.dataDir, String(port), 'blocked.rdb'), { recursive: true });
  const server = await servers.add(['dbfilename blocked.rdb', 'save 3600 1000'], port);
  await server.control.bgsave();
  await waitFor('the snapshot to fail', async () =>
    (await server.control.info('persistence')).includes('rdb_last_bgsave_status:err'),
  );
  expect(await failOn(server)).toMatchObject(unavailable('MISCONF'));
});

it('a node that serves no slots is unavailable (CLUSTERDOWN)', async () => {
  expect(await failOn(await servers.add(['cluster-enabled yes']))).toMatchObject(unavailable('CLUSTERDOWN'));
});

it('a replica is unavailable (READONLY), and so it is without its primary (MASTERDOWN)', async () => {
  const primary = await servers.add([]);
  const replica = await servers.add([`replicaof 127.0.0.1 ${primary.port}`]);
  await waitFor('the replica', async () => countReplicas(primary, 1));
  expect(await failOn(replica)).toMatchObject(unavailable('READONLY'));
  await replica.control.config('SET', 'replica-serve-stale-data', 'no');
  await servers.kill(primary);
  await waitFor('the link to break', async () =>
    (await replica.control.info('replication')).includes('master_link_status:down'),
  );
  expect(await failOn(replica)).toMatchObject(unavailable('MASTERDOWN'));
});

it('a primary that wants more replicas is unavailable (NOREPLICAS)', async () => {
  const server = await servers.add(['min-replicas-to-write 1']);
  expect(await failOn(server)).toMatchObject(unavailable('NOREPLICAS'));
});

it('a wait on a primary that becomes a replica is unavailable (UNBLOCKED)', async () => {
  const server = await servers.add([]);
  const waiting = server.control.duplicate();
  const answer = waiting
    .xread('BLOCK', 20_000, 'STREAMS', 'nothing', '$')
    .catch((error: unknown) => mapRedisError(error));
  await waitFor('the wait', async () => (await server.control.info('clients')).includes('blocked_clients:1'));
  await server.control.replicaof('127.0.0.1', await findFreePort());
  expect(await answer).toMatchObject(unavailable('UNBLOCKED'));
  waiting.disconnect();
});

it('a command that Redis does not know is our fault', () => {
  const error = mapRedisError(new Error("ERR unknown command 'NOPE'"));
  expect(error).not.toBeInstanceOf(StoreError);
});
