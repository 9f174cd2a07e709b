import { once } from 'node:events';
import { Accounts } from '@logpond/db/accounts';
import { ApiKeys } from '@logpond/db/api-keys';
import { connectRedis } from '@logpond/db/connect';
import { ControlStore } from '@logpond/db/control-store';
import type { DeadLetter } from '@logpond/db/dead-letters';
import { Organizations } from '@logpond/db/organizations';
import { Projects } from '@logpond/db/projects';
import { shardKeys } from '@logpond/db/shard-map';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { EventReader } from './support/event-reader.ts';
import { judge } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess, Tenant } from './support/rig.ts';

const ROWS = 20;
/** Workers that are tried. */
const DEATHS_MAX = 5;

let rig: Rig;
let api: ApiProcess;

beforeAll(async () => {
  rig = await Rig.open({ shards: 1 });
  const worker = rig.startWorker();
  api = await rig.startApi();
  await worker.stop();
});
afterEach(async () => rig.killWorkers());
afterAll(async () => rig[Symbol.asyncDispose]());

async function createTenants(): Promise<[Tenant, Tenant]> {
  const [one, other] = await rig.createTenants(2);
  if (one === undefined || other === undefined) throw new RangeError('expected two tenants');
  return [one, other];
}

/** A project with the session of its owner. */
async function createOwned(): Promise<Tenant & { session: string }> {
  const settings = {
    REDIS_URL: rig.env['REDIS_URL'] ?? '',
    KEY_PREFIX: 'lp',
    SHARDS: rig.shards,
    REDIS_BUDGET_BYTES: 1_073_741_824,
  };
  await using redis = await connectRedis(settings);
  const control = new ControlStore(redis);
  await using apiKeys = new ApiKeys(control);
  const actor = { kind: 'system' } as const;
  const login = { email: `owner@${crypto.randomUUID()}.test`, password: 'correct horse battery staple' };
  const user = await new Accounts(control).createUser(actor, { ...login, name: 'Owner', isAdmin: false });
  const organization = await new Organizations(control).create(actor, user.id, { name: 'Poisoned' });
  const project = await new Projects(control).create(actor, { organizationId: organization.id, name: 'own' });
  const { apiKey } = await apiKeys.create(actor, project.id, { name: 'own' });
  const session = await new Accounts(control).login(login.email, login.password);
  if (session === undefined) throw new Error('expected a session');
  return { projectId: project.id, apiKey, shard: 0, session: session.token };
}

async function call(method: string, path: string, headers: Record<string, string>): Promise<Response> {
  return fetch(`${api.url}/api/v1${path}`, { method, headers, signal: AbortSignal.timeout(20_000) });
}

async function listLetters({ projectId, apiKey }: Tenant): Promise<DeadLetter[]> {
  const answer = await call('GET', `/projects/${projectId}/dead-letters`, { 'X-API-Key': apiKey });
  expect(answer.status).toBe(200);
  return ((await answer.json()) as { deadLetters: DeadLetter[] }).deadLetters;
}

async function replay({ projectId, apiKey }: Tenant, letter: DeadLetter): Promise<{ received?: number }> {
  const path = `/projects/${projectId}/dead-letters/${letter.id}/replay`;
  const answer = await call('POST', path, { 'X-API-Key': apiKey });
  return (await answer.json()) as { received?: number };
}

/** How many entries of a project are stored, and how many different ones. */
async function countStored(tenant: Tenant): Promise<{ entries: number; different: number }> {
  const [row] = await rig.selectRows<{ entries: string; different: string }>(
    `SELECT count() AS entries, uniqExact(JSONExtractString(metadata, 'id')) AS different FROM logs
     WHERE project_id = {project:UUID}`,
    { project: tenant.projectId },
  );
  return { entries: Number(row?.entries), different: Number(row?.different) };
}

/** Entries whose dead letter was replayed, which received them a second time, or deleted. */
let resolved = 0;

/** received = stored + dead + pending, and nothing pending. */
async function expectBalance(): Promise<void> {
  for (const { received, stored, dead, pending } of await rig.readAccounts()) {
    expect({ received, pending }).toEqual({ received: stored + dead + resolved, pending: 0 });
  }
}

/** Starts workers, one after the other, until one lives long enough to store everything. Returns how many died. */
async function outlive(env: Readonly<Record<string, string>>): Promise<number> {
  for (let deaths = 0; deaths <= DEATHS_MAX; deaths += 1) {
    const worker = rig.startWorker(env);
    const ended = new AbortController();
    const death = once(worker.child, 'exit').then(() => ended.abort());
    const isOver = await waitFor('the worker to end, or to store everything', async () => {
      if (ended.signal.aborted) return 'dead';
      const { next, done, plan } = await rig.readShard(0);
      return next === done && plan === undefined && 'at rest';
    });
    if (isOver === 'at rest') return deaths;
    await death;
    expect(worker.child.signalCode).toBe('SIGKILL');
    await rig.expireLeases();
  }
  throw new Error(`expected a worker to live, ${DEATHS_MAX + 1} died`);
}

describe('F31: rows that ClickHouse refuses every time', () => {
  it('go to the dead letters, their neighbours are stored, also when the worker is killed on the way', async () => {
    const [tenant, neighbour] = await createTenants();
    const owned = await createOwned();
    const oracle = new Oracle({ run: 'f31', tenants: [tenant, neighbour], url: api.url });
    const bad = ['0.3', '1.0', '1.19', '2.7'].map((row) => `${oracle.run}.${row}`);
    await rig.clickhouse.command({
      query: `ALTER TABLE logs ADD CONSTRAINT no_poison
              CHECK message != 'poison' AND NOT has({bad:Array(String)}, JSONExtractString(metadata, 'id'))`,
      query_params: { bad },
    });
    for (const to of [tenant, tenant, neighbour, neighbour])
      await oracle.send(to, { rows: ROWS, isKeyed: false });
    const sent = await fetch(`${api.url}/api/v1/ingest`, {
      method: 'POST',
      headers: { 'X-API-Key': owned.apiKey, 'Content-Type': 'application/json' },
      body: JSON.stringify({ logs: [{ service: 's', level: 'info', message: 'poison' }] }),
    });
    expect(sent.status).toBe(200);
    const killed = rig.startWorker({ FAILPOINT: 'W6.before:kill' });
    await once(killed.child, 'exit');
    expect(killed.child.signalCode).toBe('SIGKILL');
    await rig.expireLeases();
    rig.startWorker();
    await rig.waitForRest();
    await oracle.send(tenant, { rows: ROWS, isKeyed: false });
    await rig.waitForRest();

    const letters = await listLetters(tenant);
    expect(letters.map(({ reason, entries }) => ({ reason, entries }))).toEqual(
      Array.from({ length: 3 }, () => ({ reason: 'refused_by_store', entries: 1 })),
    );
    for (const { detail } of letters) expect(detail).toContain('no_poison');
    expect(await listLetters(neighbour)).toHaveLength(1);
    const verdict = await judge(rig, oracle, api.url);
    expect(verdict).toMatchObject({ faults: [], acknowledged: 100, stored: 96, deadLettered: 4 });
    await expectBalance();

    await rig.clickhouse.command({ query: 'ALTER TABLE logs DROP CONSTRAINT no_poison' });
    for (const letter of letters) expect(await replay(tenant, letter)).toMatchObject({ received: 1 });
    await rig.waitForRest();
    expect(await listLetters(tenant)).toEqual([]);
    expect(await countStored(tenant)).toEqual({ entries: 60, different: 60 });

    const [mine] = await listLetters(owned);
    const path = `/projects/${owned.projectId}/dead-letters/${mine?.id}`;
    expect((await call('DELETE', path, { Authorization: `Bearer ${owned.session}` })).status).toBe(204);
    expect(await listLetters(owned)).toEqual([]);
    resolved += letters.length + 1;
    await expectBalance();
  });
});

describe('F32: a block that ends every worker that decodes it', () => {
  it('goes to the dead letters after three deaths, its neighbours are stored', async () => {
    const [tenant, neighbour] = await createTenants();
    const oracle = new Oracle({ run: 'f32', tenants: [tenant, neighbour], url: api.url });
    await oracle.send(neighbour, { rows: ROWS, isKeyed: false });
    const { next } = await rig.readShard(0);
    await oracle.send(tenant, { rows: ROWS, isKeyed: false });
    await oracle.send(neighbour, { rows: ROWS, isKeyed: false });
    const deaths = await outlive({ FAILPOINT: `W2.decode@${next}:kill` });
    expect(deaths).toBe(3);
    expect(await listLetters(tenant)).toMatchObject([{ reason: 'kills_reader', entries: ROWS }]);
    const verdict = await judge(rig, oracle, api.url);
    expect(verdict).toMatchObject({ faults: [], stored: 2 * ROWS, deadLettered: ROWS });
    await expectBalance();
  });
});

/** Writes a shard's stream anew with one block changed, as a broken disk or a bug would leave it. */
async function damage(shard: number, offset: number, change: (block: Buffer) => void): Promise<void> {
  const { log } = shardKeys('lp', shard);
  const copy = `${log}:copy`;
  for (const [id, fields] of await rig.redis.xrangeBuffer(log, '-', '+')) {
    const block = fields[1];
    if (id.toString() === `${offset}-0` && block !== undefined) change(block);
    await rig.redis.xadd(copy, id, ...fields);
  }
  await rig.redis.rename(copy, log);
}

/** Changes some bits of one byte; counted from the end when `at` is below 0. */
function flip(block: Buffer, at: number, bits: number): void {
  const place = at < 0 ? block.length + at : at;
  block.writeUInt8(block.readUInt8(place) ^ bits, place);
}

type Damage = {
  what: string;
  change: (block: Buffer) => void;
  isHeader: boolean;
  /** Whether the reader comes back to another process, or its process to the stream after a stall. */
  isStalled: boolean;
};

/** Offsets: log-block/src/layout.ts. */
const DAMAGES: Damage[] = [
  { what: 'a flipped bit', change: (block) => flip(block, -5, 1), isHeader: false, isStalled: false },
  { what: 'a flipped bit', change: (block) => flip(block, -5, 1), isHeader: false, isStalled: true },
  { what: 'another magic', change: (block) => flip(block, 0, 0xff), isHeader: true, isStalled: true },
  { what: 'other rows', change: (block) => flip(block, 8, 1), isHeader: true, isStalled: false },
  { what: 'zeros', change: (block) => block.fill(0), isHeader: true, isStalled: true },
];

/** Puts a damaged block and a whole one into the stream behind the back of a process with a reader. */
async function sendBehind(
  reading: ApiProcess,
  oracle: Oracle,
  { change, isStalled }: Damage,
): Promise<ApiProcess> {
  const [tenant] = oracle.tenants;
  if (tenant === undefined) throw new RangeError('expected a tenant');
  if (isStalled) {
    rig.pause(reading);
    await rig.redis.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
  } else await rig.killApp(reading);
  const { next } = await rig.readShard(0);
  await oracle.send(tenant, { rows: ROWS, isKeyed: false });
  await oracle.send(tenant, { rows: ROWS, isKeyed: false });
  await damage(0, next, change);
  if (!isStalled) return rig.startApi({}, reading.port);
  rig.resume(reading);
  return reading;
}

describe('F33: a corrupt block in the stream', () => {
  it.each(DAMAGES)(
    '$what, stalled $isStalled: neighbours stored, the tail goes on with a gap',
    async (damaged) => {
      const [tenant] = await createTenants();
      const oracle = new Oracle({ run: 'f33', tenants: [tenant], url: api.url });
      let reading = await rig.startApi();
      await using reader = new EventReader({ url: reading.url, apiKey: tenant.apiKey });
      await waitFor('the stream to be open', () => reader.isConnected);
      await oracle.send(tenant, { rows: ROWS, isKeyed: false });
      await waitFor('the first events', () => reader.logs.length === ROWS);
      reading = await sendBehind(reading, oracle, damaged);
      await waitFor('the events behind the damage', () => reader.logs.length === 2 * ROWS);
      await oracle.send(tenant, { rows: ROWS, isKeyed: false });
      await waitFor('the live events', () => reader.logs.length === 3 * ROWS);
      const kinds = reader.events.map(({ event }) => event);
      expect(kinds.filter((kind) => kind !== 'log')).toEqual(['gap']);
      expect(kinds.indexOf('gap')).toBe(ROWS);
      await rig.killApp(reading);

      rig.startWorker();
      await rig.waitForRest();
      const letters = await listLetters(tenant);
      // A header that cannot be believed does not say whose entries they were: that letter is the operators'.
      const mine = damaged.isHeader ? [] : [{ reason: 'damaged_block', entries: ROWS }];
      expect(letters).toMatchObject(mine);
      const verdict = await judge(rig, oracle, api.url);
      expect(verdict).toMatchObject({ stored: 3 * ROWS, lost: damaged.isHeader ? ROWS : 0, duplicated: 0 });
      await expectBalance();
    },
  );
});
