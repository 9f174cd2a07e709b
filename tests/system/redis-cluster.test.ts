import { createHash } from 'node:crypto';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { OutboxItem } from '@logpond/db/alert-windows';
import { DeadLetters } from '@logpond/db/dead-letters';
import { LogStream } from '@logpond/db/log-stream';
import { NotificationGroups } from '@logpond/db/notification-group';
import { listNotificationJobs } from '@logpond/db/notification-job';
import { RedisScript } from '@logpond/db/redis-script';
import { SHARD_TAGS, shardKeys } from '@logpond/db/shard-map';
import { waitFor } from '../support/wait.ts';
import { AlertApi } from './support/alert-api.ts';
import { EventReader } from './support/event-reader.ts';
import { judge } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { ClusterTopology, countReplicas } from './support/redis-topology.ts';
import type { RedisServer } from './support/redis-topology.ts';
import { KEY_PREFIX } from './support/rig-state.ts';
import { TopologyRig } from './support/topology-rig.ts';
import type { ApiProcess, Tenant } from './support/rig.ts';
import type { OwnedTenant } from './support/rig-tenants.ts';

const SHARDS = 6;
const ROWS = 20;
const DB_DIR = join(import.meta.dirname, '../../packages/db/src');

let redis: ClusterTopology;
let rig: TopologyRig;
let api: ApiProcess;
/** Two projects on each shard, one for each test. */
let tenants: OwnedTenant[];

beforeAll(async () => {
  redis = await ClusterTopology.open();
  rig = await TopologyRig.open({ shards: SHARDS, waitReplicas: 1, env: redis.env });
  tenants = await rig.createTenants(2);
  rig.startWorker();
  rig.startAlertWorker();
  api = await rig.startApi();
});
afterAll(async () => {
  await rig?.[Symbol.asyncDispose]();
  await redis?.[Symbol.asyncDispose]();
});

function openOracle(run: string, turn: number): Oracle {
  return new Oracle({ run, tenants: tenants.filter((_, index) => index % 2 === turn), url: api.url });
}

function findOwned(projectId: string): OwnedTenant {
  const owned = tenants.find((tenant) => tenant.projectId === projectId);
  if (owned === undefined) throw new Error('expected a tenant of this test');
  return owned;
}

async function primaryOfShard(shard: number): Promise<RedisServer> {
  return redis.findPrimaryOf(shardKeys(KEY_PREFIX, shard).state);
}

async function ask(path: string, apiKey: string, init: RequestInit = {}): Promise<Response> {
  const headers = { 'X-API-Key': apiKey };
  return fetch(`${api.url}/api/v1${path}`, { ...init, headers, signal: AbortSignal.timeout(10_000) });
}

/** What the nodes counted of errors, by their code. */
async function countErrors(code: string): Promise<number> {
  const texts = redis.servers.all.map(async ({ control }) => control.info('errorstats'));
  const pattern = new RegExp(`errorstat_${code}:count=(\\d+)`);
  return (await Promise.all(texts)).reduce((sum, text) => sum + Number(pattern.exec(text)?.[1] ?? 0), 0);
}

/** Scripts below packages/db/src that no node of the cluster has ever been sent. */
async function listUnusedScripts(): Promise<string[]> {
  const unused: string[] = [];
  for (const file of globSync('*.lua/*.lua', { cwd: DB_DIR })) {
    const sha = createHash('sha1')
      .update(readFileSync(join(DB_DIR, file)))
      .digest('hex');
    const known = redis.servers.all.map(async ({ control }) => control.script('EXISTS', sha));
    if (!(await Promise.all(known)).flat().includes(1)) unused.push(file);
  }
  return unused;
}

/** What a quiet installation does not come by: questions of a second worker, and backlog figures. */
async function runRareScripts(projectId: string): Promise<void> {
  const { store } = rig;
  const stream = await LogStream.open(store);
  await stream.readBacklog(projectId);
  await stream.recall(stream.shardOf(projectId), { projectId, key: 'none', bodyHash: 'none' });
  // What a second worker asks while a first one prepares the stores.
  const prepared = new RedisScript('log-stream.lua/prepared.lua');
  const [answer] = (await prepared.run(store.client, [shardKeys(KEY_PREFIX, 0).state], [])) as unknown[];
  expect(answer).toBe('ready');
  await joinMails(projectId);
}

/** Two notifications within a minute: the second waits for a mail that holds both, which here is taken at once. */
async function joinMails(projectId: string): Promise<void> {
  const at = new Date().toISOString();
  const condition = {
    field: 'level',
    operator: 'equals',
    value: 'error',
    threshold: 1,
    timeWindow: '1m',
  } as const;
  const notifications = [{ type: 'email' as const, config: { recipients: ['twice@example.com'] } }];
  const head = {
    version: 1,
    generation: 1,
    id: crypto.randomUUID(),
    projectId,
    createdAt: at,
    updatedAt: at,
  };
  const rule = { ...head, name: 'twice', enabled: true, condition, notifications };
  const times = { startedAtMs: Date.now(), resolvedAtMs: null, atMs: Date.now() };
  const counts = { count: 1, firedCount: 1, peak: 1 };
  const makeItem = (): OutboxItem => {
    return { firingId: crypto.randomUUID(), kind: 'fired', repeat: 0, projectId, rule, ...counts, ...times };
  };
  const groups = new NotificationGroups(rig.store);
  const [first, second] = [makeItem(), makeItem()].flatMap(listNotificationJobs);
  if (first === undefined || second === undefined) throw new Error('expected two notifications');
  expect(await groups.claim(first, Date.now())).toEqual({ kind: 'send' });
  await groups.finish(first, true, Date.now());
  const claim = await groups.claim(second, Date.now());
  if (claim.kind !== 'join') throw new Error('expected the second one to wait');
  const closed = await groups.close({ id: 'group', group: claim.group }, claim.atMs);
  expect(closed).toMatchObject({ kind: 'send', items: [{ id: second.id }] });
}

/** A rule of each of these projects fires, and its mail is written. */
async function fireRules(own: readonly OwnedTenant[]): Promise<void> {
  const alerts = new AlertApi(api.url);
  const condition = { field: 'level', operator: 'equals', value: 'critical', threshold: 2, timeWindow: '5m' };
  const notifications = [{ type: 'email', config: { recipients: ['ops@example.com'] } }];
  const draft = { name: 'on a cluster', enabled: true, condition, notifications };
  for (const tenant of own) {
    await alerts.createRule(tenant, draft);
    const entry = { service: 'web', level: 'critical', message: 'down' };
    await alerts.send(tenant, [entry, entry]);
  }
  const isMailed = (): boolean => globSync('*.eml', { cwd: rig.mailsDir }).length >= own.length;
  await waitFor('a mail of each rule', isMailed, 30_000);
}

/** Buries one entry of a project as its shard's worker would; gives the letter's id. */
async function buryLetter({ projectId, shard }: Tenant): Promise<string> {
  const { state } = shardKeys(KEY_PREFIX, shard);
  const fence = (await rig.store.client.hget(state, 'ingest:fence')) ?? '';
  const entry = { time: new Date().toISOString(), level: 'info', service: 'web', message: 'buried' };
  const answer = await new DeadLetters(rig.store).bury(shard, fence, {
    id: `1-${shard}-1-1`,
    projectId,
    reason: 'refused_by_store',
    detail: 'a test',
    entries: 1,
    firstOffset: 1,
    createdAtMs: Date.now(),
    payload: Buffer.from(`${JSON.stringify(entry)}\n`),
    isReadable: true,
  });
  expect(answer).toBe('buried');
  return `1-${shard}-1-1`;
}

describe('Redis Cluster of three primaries with a replica each', () => {
  it('spreads the shards evenly, and every key of a shard lies on one node', async () => {
    const counts = new Map<number, number>();
    for (let shard = 0; shard < SHARD_TAGS.length; shard += 1) {
      const { port } = await primaryOfShard(shard);
      counts.set(port, (counts.get(port) ?? 0) + 1);
    }
    expect([...counts.values()]).toEqual([8, 8, 8]);
  });

  it('pipeline, tail, accounts, receipts, dead letters and alerts work, without one CROSSSLOT', async () => {
    const oracle = openOracle('cluster', 0);
    const readers = oracle.tenants.map(({ apiKey }) => new EventReader({ url: api.url, apiKey }));
    try {
      await waitFor('all readers', () => readers.every((reader) => reader.isConnected));
      for (const tenant of oracle.tenants) {
        for (let turn = 0; turn < 5; turn += 1) {
          const sent = await oracle.send(tenant, { rows: ROWS, isKeyed: turn % 2 === 0 });
          expect(sent.status).toBe(200);
        }
      }
      await waitFor('the tails', () => readers.every(({ logs }) => logs.length >= 5 * ROWS));
      expect(readers.map(({ events }) => events.filter(({ event }) => event === 'gap').length)).toEqual(
        readers.map(() => 0),
      );
    } finally {
      await Promise.all(readers.map(async (reader) => reader[Symbol.asyncDispose]()));
    }
    await rig.waitForRest();
    expect((await judge(rig, oracle, api.url)).faults).toEqual([]);

    const [tenant] = oracle.tenants;
    if (tenant === undefined) throw new Error('expected a tenant');
    const path = `/projects/${tenant.projectId}/dead-letters`;
    const id = await buryLetter(tenant);
    const list = (await (await ask(path, tenant.apiKey)).json()) as { deadLetters: { id: string }[] };
    expect(list.deadLetters.map((letter) => letter.id)).toEqual([id]);
    expect((await ask(`${path}/${id}/replay`, tenant.apiKey, { method: 'POST' })).status).toBe(200);
    expect((await ask(`${path}/${id}`, tenant.apiKey)).status).toBe(404);

    await fireRules(oracle.tenants.map(({ projectId }) => findOwned(projectId)));
    await runRareScripts(tenant.projectId);
    let unused: string[] = [];
    const isEachUsed = async (): Promise<boolean> => (unused = await listUnusedScripts()).length === 0;
    await waitFor('every script to be used', isEachUsed, 10_000).catch(() => {});
    expect(unused).toEqual([]);
    expect(await countErrors('CROSSSLOT')).toBe(0);
    expect(rig.allOutput).not.toMatch(/CROSSSLOT|same slot/);
  });

  it('a killed primary stops its own shards only, its replica takes over, and nothing is lost', async () => {
    const oracle = openOracle('promotion', 1);
    // The one that the workers count each other on, and the accounts are.
    const victim = await redis.findPrimaryOf(`${KEY_PREFIX}:{cp}:log-shards`);
    const isOnVictim = await Promise.all(
      oracle.tenants.map(async ({ shard }) => (await primaryOfShard(shard)) === victim),
    );
    const others = oracle.tenants.filter((_, index) => !isOnVictim[index]);
    const own = oracle.tenants.filter((_, index) => isOnVictim[index]);
    expect([own.length, others.length]).toEqual([2, 4]);

    await using load = oracle.startLoad({ concurrency: 6, rowsPerRequest: ROWS, pauseMs: 20, isKeyed: true });
    await waitFor('a load', () => oracle.acknowledgedRows >= 30 * ROWS);
    await redis.servers.kill(victim);
    for (const tenant of others) {
      const sent = await oracle.send(tenant, { rows: ROWS, isKeyed: true, ambiguousMax: 1 });
      expect([tenant.shard, sent.status]).toEqual([tenant.shard, 200]);
    }
    // Alone its replica may not acknowledge anything: a second machine has to hold it.
    await waitFor('a promotion', async () => (await primaryOfShard(own[0]?.shard ?? 0)) !== victim);
    await redis.servers.restart(victim);
    const successor = await primaryOfShard(own[0]?.shard ?? 0);
    await waitFor('its replica', async () => countReplicas(successor, 1));
    for (const tenant of own) {
      const sent = await oracle.send(tenant, { rows: ROWS, isKeyed: true });
      expect(sent.status).toBe(200);
    }
    await load.stop();
    await rig.waitForRest();
    const verdict = await judge(rig, oracle, api.url);
    expect(verdict.faults).toEqual([]);
    expect(oracle.unannounced).toBe(0);
    expect([...oracle.statuses.keys()].filter((status) => status !== 200 && status !== 503)).toEqual([]);
    expect(await countErrors('CROSSSLOT')).toBe(0);
  });
});
