import { setTimeout as delay } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { shardKeys } from '@logpond/db/shard-map';
import { KEY_PREFIX } from './rig-state.ts';
import type { RedisServer, SentinelTopology } from './redis-topology.ts';

/** A question to a server that is down would wait until it is back. */
const ANSWER_MS_MAX = 2_000;

/** What the servers and the Sentinels say of themselves: why nothing goes on cannot be told from the product alone. */
export async function reportTopology(topology: SentinelTopology, shards: number): Promise<string> {
  const servers = topology.servers.all.map(async (server) => reportServer(server, shards));
  const sentinels = topology.sentinels.map(async ({ port, control, output }) => {
    const parts = [['MASTER'], ['REPLICAS'], ['SENTINELS']].map(async ([what = '']) =>
      ask(control.call('SENTINEL', what, topology.sentinelName)),
    );
    return [`sentinel ${port}`, ...(await Promise.all(parts)), output()].join('\n');
  });
  return (await Promise.all([...servers, ...sentinels])).join('\n---\n');
}

async function reportServer({ port, process, control }: RedisServer, shards: number): Promise<string> {
  const { child, pid } = process;
  const head = `server ${port}, pid ${pid}, ended: ${child.signalCode ?? child.exitCode ?? 'no'}`;
  if (child.signalCode !== null || child.exitCode !== null) return head;
  const run = /run_id:\w+/.exec(await ask(control.info('server')))?.[0] ?? 'no run_id';
  const states = Array.from({ length: shards }, async (_, shard) => reportShard(control, shard));
  const clients = ask(control.call('CLIENT', 'LIST'));
  const parts = await Promise.all([ask(control.info('replication')), ...states, clients]);
  return [head, run, ...parts].join('\n');
}

async function reportShard(control: Redis, shard: number): Promise<string> {
  const { state, lease } = shardKeys(KEY_PREFIX, shard);
  const [fields, holder] = await Promise.all([
    ask(control.hgetall(state)),
    ask(control.get(lease('ingest'))),
  ]);
  return `shard ${shard}: ${fields}; lease ${holder}`;
}

async function ask(answer: Promise<unknown>): Promise<string> {
  const silence = delay(ANSWER_MS_MAX, 'no answer', { ref: false });
  const said = await Promise.race([answer, silence]).catch((error: unknown) => String(error));
  return typeof said === 'string' ? said : JSON.stringify(said);
}
