import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { shardKeys } from '@logpond/db/shard-map';
import type { AppProcess } from '../support/app-process.ts';
import { waitFor } from '../support/wait.ts';
import { judge } from './support/judge.ts';
import type { Verdict } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import type { Sent } from './support/oracle.ts';
import { SentinelTopology } from './support/redis-topology.ts';
import type { RedisServer } from './support/redis-topology.ts';
import { KEY_PREFIX } from './support/rig-state.ts';
import { reportTopology } from './support/topology-report.ts';
import { TopologyRig } from './support/topology-rig.ts';
import type { ApiProcess, Tenant } from './support/rig.ts';

const ROWS = 20;
/** A failover takes some 3 s; on a busy machine a living primary may be taken for dead behind it, again and again. */
const SENDING_MS_MAX = 120_000;

let redis: SentinelTopology;
let rig: TopologyRig;
let worker: AppProcess;
let api: ApiProcess;
let tenants: Tenant[];

beforeAll(async () => {
  redis = await SentinelTopology.open();
  rig = await TopologyRig.open({ shards: 2, waitReplicas: 1, env: redis.env });
  tenants = await rig.createTenants(4);
  worker = rig.startWorker();
  api = await rig.startApi();
});
afterAll(async () => {
  await rig?.[Symbol.asyncDispose]();
  await redis?.[Symbol.asyncDispose]();
});

/** Each test has projects of its own, one on each shard. */
function openOracle(run: string, turn: number): Oracle {
  const own = tenants.filter((_, index) => index % 4 === turn);
  return new Oracle({ run, tenants: own, url: api.url });
}

function firstOf(oracle: Oracle): Tenant {
  const [tenant] = oracle.tenants;
  if (tenant === undefined) throw new Error('expected a tenant');
  return tenant;
}

/** What never comes is told with what the processes, the servers and the Sentinels say: a test that times out is mute. */
async function explain<T>(wait: Promise<T>): Promise<T> {
  try {
    return await wait;
  } catch (error) {
    const report = await reportTopology(redis, rig.shards);
    throw new Error(`${String(error)}\n${rig.outputs()}\n---\n${report}`, { cause: error });
  }
}

async function waitForProgress(oracle: Oracle, rows: number): Promise<void> {
  const from = oracle.acknowledgedRows;
  const isReached = (): boolean => oracle.acknowledgedRows >= from + rows;
  await explain(waitFor(`${rows} more entries to be acknowledged`, isReached, 30_000));
}

async function waitForPrimary(replicas: number, other?: RedisServer): Promise<RedisServer> {
  return explain(redis.waitForPrimary(replicas, other));
}

/** One request, sent until it is answered clearly, at most for two minutes. */
async function send(oracle: Oracle): Promise<Sent> {
  const signal = AbortSignal.timeout(SENDING_MS_MAX);
  return oracle.send(firstOf(oracle), { rows: ROWS, isKeyed: true, signal });
}

async function waitForReceipt(sending: Promise<Sent>): Promise<Sent> {
  const receive = async (): Promise<Sent> => {
    const sent = await sending;
    if (sent.status === 200) return sent;
    throw new Error(`no receipt within ${SENDING_MS_MAX} ms, at last the status ${sent.status}`);
  };
  return explain(receive());
}

async function assertNoFaults(oracle: Oracle): Promise<Verdict> {
  const verdict = await judge(rig, oracle, api.url);
  // Who was promoted, and how far it was, tells what is lost from what was never there.
  await explain((async () => expect(verdict.faults).toEqual([]))());
  return verdict;
}

describe('Redis with Sentinels and a replica that must hold every entry', () => {
  it('no acknowledged entry is lost or doubled when the primary is killed, and its successor too', async () => {
    const oracle = openOracle('failover', 0);
    await using load = oracle.startLoad({ concurrency: 4, rowsPerRequest: ROWS, pauseMs: 10, isKeyed: true });
    await waitForProgress(oracle, 50 * ROWS);
    const first = await waitForPrimary(2);
    await redis.servers.kill(first);
    const second = await waitForPrimary(1, first);
    await waitForProgress(oracle, 50 * ROWS);

    await redis.servers.restart(first, [`replicaof 127.0.0.1 ${second.port}`]);
    await waitForPrimary(2);
    await waitForProgress(oracle, 20 * ROWS);
    await redis.servers.kill(second);
    const third = await waitForPrimary(1, second);
    await waitForProgress(oracle, 50 * ROWS);
    await load.stop();
    await redis.servers.restart(second, [`replicaof 127.0.0.1 ${third.port}`]);
    await explain(rig.waitForRest());

    const verdict = await assertNoFaults(oracle);
    expect(verdict.acknowledged).toBeGreaterThanOrEqual(170 * ROWS);
    expect([...oracle.statuses.keys()].filter((status) => status !== 200 && status !== 503)).toEqual([]);
    expect(oracle.unannounced).toBe(0);
  });

  it('nothing is acknowledged that no replica holds: it would be gone with the primary', async () => {
    const oracle = openOracle('split', 1);
    const primary = await waitForPrimary(2);
    const replicas = redis.servers.all.filter((server) => server !== primary);
    await Promise.all(replicas.map(async (replica) => redis.servers.kill(replica)));
    const sending = send(oracle);
    await explain(waitFor('two refusals', () => (oracle.statuses.get(503) ?? 0) >= 2));
    expect(oracle.statuses.has(200)).toBe(false);
    await redis.servers.kill(primary);
    const follow = `replicaof 127.0.0.1 ${primary.port}`;
    await Promise.all(replicas.map(async (replica) => redis.servers.restart(replica, [follow])));
    const successor = await waitForPrimary(1, primary);
    // The one that was promoted had never seen it: it is stored by this retry.
    expect(await waitForReceipt(sending)).toMatchObject({ status: 200, isReplayed: false });
    await redis.servers.restart(primary, [`replicaof 127.0.0.1 ${successor.port}`]);
    await waitForPrimary(2);
    await explain(rig.waitForRest());
    await assertNoFaults(oracle);
  });

  it('without a replica it answers 503, and the retry with the key is the replay once one is back', async () => {
    const oracle = openOracle('alone', 3);
    const primary = await waitForPrimary(2);
    const replicas = redis.servers.all.filter((server) => server !== primary);
    await Promise.all(replicas.map(async (replica) => redis.servers.kill(replica)));

    const sending = send(oracle);
    await explain(waitFor('two refusals', () => (oracle.statuses.get(503) ?? 0) >= 2));
    expect(oracle.statuses.has(200)).toBe(false);
    for (const replica of replicas) {
      await redis.servers.restart(replica, [`replicaof 127.0.0.1 ${primary.port}`]);
    }
    expect(await waitForReceipt(sending)).toMatchObject({ status: 200, isReplayed: true });
    await explain(rig.waitForRest());
    await assertNoFaults(oracle);
  });

  it('a plan that no replica holds is not carried out, neither by its writer nor by the next owner', async () => {
    const oracle = openOracle('plan', 2);
    const { projectId, shard } = firstOf(oracle);
    const { state } = shardKeys(KEY_PREFIX, shard);
    const primary = await waitForPrimary(2);
    const replicas = redis.servers.all.filter((server) => server !== primary);
    await Promise.all(replicas.map(async (replica) => redis.servers.kill(replica)));
    const sending = send(oracle);
    const isPlanned = async (): Promise<boolean> =>
      (await primary.control.hexists(state, 'ingest:plan')) === 1;
    await explain(waitFor('a plan', isPlanned));
    const fence = Number.parseInt((await primary.control.hget(state, 'ingest:fence')) ?? '0', 10);
    await worker.kill();
    worker = rig.startWorker();
    const isTaken = async (): Promise<boolean> =>
      Number.parseInt((await primary.control.hget(state, 'ingest:fence')) ?? '0', 10) > fence;
    const isRefused = (): boolean => worker.output().includes('replicas to hold the write');
    await explain(waitFor('the next owner, or its refusal', async () => isRefused() || isTaken()));
    const query = 'SELECT count() AS rows FROM logs WHERE project_id = {project:UUID}';
    const isInserted = async (): Promise<boolean> => {
      const [count] = await rig.selectRows<{ rows: string }>(query, { project: projectId });
      return count?.rows !== '0';
    };
    await expect(waitFor('an insert', isInserted, 3_000)).rejects.toThrow('an insert');

    await redis.servers.kill(primary);
    const follow = `replicaof 127.0.0.1 ${primary.port}`;
    await Promise.all(replicas.map(async (replica) => redis.servers.restart(replica, [follow])));
    const successor = await waitForPrimary(1, primary);
    expect(await waitForReceipt(sending)).toMatchObject({ status: 200, isReplayed: false });
    await redis.servers.restart(primary, [`replicaof 127.0.0.1 ${successor.port}`]);
    await explain(rig.waitForRest());
    await assertNoFaults(oracle);
  });
});
