import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { ChaosProxy } from './support/chaos-proxy.ts';
import { EventReader } from './support/event-reader.ts';
import { judge } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import type { Sent } from './support/oracle.ts';
import { chooseSeed, createRandom, pickInteger } from './support/random.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess } from './support/rig.ts';
import { loadScript } from './support/scripts.ts';

const KILLS = 4;

let rig: Rig;
/** The one that is not killed. */
let reference: ApiProcess;

beforeAll(async () => {
  rig = await Rig.open({ shards: 2 });
  await rig.createTenants(1);
  rig.startWorker();
  reference = await rig.startApi();
});
afterAll(async () => rig[Symbol.asyncDispose]());

describe('the API killed under load', () => {
  it('F05, F06: with a key every batch is stored once; without, at most as often as it was sent', async () => {
    const random = createRandom(chooseSeed('F05'));
    let api = await rig.startApi();
    const keyed = new Oracle({ run: 'f05', tenants: await rig.createTenants(1), url: api.url });
    const unkeyed = new Oracle({ run: 'f06', tenants: await rig.createTenants(1), url: api.url });
    const options = { concurrency: 4, rowsPerRequest: 20, pauseMs: 5 };
    await using keyedLoad = keyed.startLoad({ ...options, isKeyed: true });
    await using unkeyedLoad = unkeyed.startLoad({ ...options, isKeyed: false, ambiguousMax: 2 });
    for (let kill = 0; kill < KILLS; kill += 1) {
      const before = keyed.acknowledgedRows;
      await waitFor('entries to be acknowledged', () => keyed.acknowledgedRows > before);
      await delay(pickInteger(random, 100, 500));
      await api.kill();
      api = await rig.startApi({}, api.port);
    }
    await Promise.all([keyedLoad.stop(), unkeyedLoad.stop()]);
    await rig.waitForRest();
    const once = await judge(rig, keyed, reference.url);
    expect(once).toMatchObject({ faults: [], extraCopies: 0 });
    const twice = await judge(rig, unkeyed, reference.url);
    process.stdout.write(`F05: ${JSON.stringify(once)}\nF06: ${JSON.stringify(twice)}\n`);
    expect(twice.faults).toEqual([]);
    await api.stop();
  });

  // Without replicas nothing lies between A3 and A4, and with them both are answered at once: A4.after is both.
  it.each([
    { point: 'A3.before', isOnDisk: false },
    { point: 'A4.after', isOnDisk: true },
    { point: 'A5.before', isOnDisk: true },
  ])(
    'F05, F06: killed at $point, a batch with a key is stored once, one without is there again if it was on disk',
    async ({ point, isOnDisk }) => {
      const [keyed, unkeyed] = await Promise.all([sendAcross(point, true), sendAcross(point, false)]);
      for (const { request } of [keyed, unkeyed])
        expect(request.outcomes).toEqual(['ambiguous', 'acknowledged']);
      expect(keyed.oracle.replayed).toBe(isOnDisk ? 1 : 0);
      await rig.waitForRest();
      const once = { faults: [], acknowledged: 20, stored: 20, extraCopies: 0 };
      expect(await judge(rig, keyed.oracle, reference.url)).toMatchObject(once);
      const extra = isOnDisk ? 20 : 0;
      const verdict = await judge(rig, unkeyed.oracle, reference.url);
      expect(verdict).toMatchObject({ ...once, stored: 20 + extra, extraCopies: extra });
    },
  );
});

/** Sends a batch to an API that ends itself at a point, and then to the one that is not killed. */
async function sendAcross(point: string, isKeyed: boolean): Promise<{ oracle: Oracle; request: Sent }> {
  const api = await rig.startApi({ FAILPOINT: `${point}:kill` });
  const [tenant] = await rig.createTenants(1);
  if (tenant === undefined) throw new RangeError('expected a tenant');
  const oracle = new Oracle({ run: point, tenants: [tenant], url: api.url });
  api.child.once('exit', () => {
    oracle.url = reference.url;
  });
  const request = await oracle.send(tenant, { rows: 20, isKeyed });
  expect(api.child.signalCode).toBe('SIGKILL');
  return { oracle, request };
}

describe('F19: the connection to Redis cut after the command, before the reply', () => {
  it('is answered 503, the client of Redis sends nothing again, and with a key a resend stores nothing more', async () => {
    await using proxy = await ChaosProxy.open(rig.redis.options.port ?? 0);
    const api = await rig.startApi({ REDIS_URL: proxy.redirect(rig.env['REDIS_URL'] ?? '') });
    const oracle = new Oracle({ run: 'f19', tenants: await rig.createTenants(1), url: api.url });
    const [tenant] = oracle.tenants;
    if (tenant === undefined) throw new RangeError('expected a tenant');
    const pattern = await loadScript(rig.redis, 'admit');
    for (const isKeyed of [false, true]) {
      const sprung = proxy.arm({ pattern, at: 'reply', action: async () => Promise.resolve('drop') });
      await oracle.send(tenant, { rows: 20, isKeyed, ambiguousMax: isKeyed ? Infinity : 1 });
      await sprung;
    }
    expect(oracle.statuses.get(503)).toBeGreaterThanOrEqual(2);
    expect(new Set(oracle.statuses.keys())).toEqual(new Set([200, 503]));
    expect(oracle.replayed).toBe(1);
    await rig.waitForRest();
    expect(await judge(rig, oracle, reference.url)).toMatchObject({ faults: [], stored: 40, extraCopies: 0 });
    await api.kill();
  });
});

describe('Redis that does not answer at all', () => {
  it('costs a batch 503 within 4 s, and nothing once it answers again', async () => {
    await using proxy = await ChaosProxy.open(rig.redis.options.port ?? 0);
    const api = await rig.startApi({ REDIS_URL: proxy.redirect(rig.env['REDIS_URL'] ?? '') });
    const oracle = new Oracle({ run: 'black-hole', tenants: await rig.createTenants(1), url: api.url });
    const [tenant] = oracle.tenants;
    if (tenant === undefined) throw new RangeError('expected a tenant');
    await oracle.send(tenant, { rows: 20, isKeyed: false });
    proxy.blackHole(true);
    const startedAt = performance.now();
    const refused = await oracle.send(tenant, { rows: 20, isKeyed: false, ambiguousMax: 1 });
    expect(performance.now() - startedAt).toBeLessThan(4_000);
    expect(refused.outcomes).toEqual(['ambiguous']);
    expect(oracle.statuses.get(503)).toBe(1);
    proxy.blackHole(false);
    await oracle.send(tenant, { rows: 20, isKeyed: true });
    await rig.waitForRest();
    expect(await judge(rig, oracle, reference.url)).toMatchObject({ faults: [], stored: 40 });
    await api.kill();
  });
});

describe('the API told to stop', () => {
  it('refuses new connections, ends its streams, answers what is in flight, and exits with 0', async () => {
    const api = await rig.startApi();
    const oracle = new Oracle({ run: 'graceful', tenants: await rig.createTenants(1), url: api.url });
    const [tenant] = oracle.tenants;
    if (tenant === undefined) throw new RangeError('expected a tenant');
    await using reader = new EventReader({ url: api.url, apiKey: tenant.apiKey });
    await waitFor('the stream to be open', () => reader.connections === 1);

    const happened: string[] = [];
    const body = JSON.stringify({ logs: [{ service: 'late', level: 'info', message: 'in flight' }] });
    const socket = connect(api.port, '127.0.0.1');
    await once(socket, 'connect');
    const answer = { text: '' };
    socket.on('data', (part: Buffer) => {
      if (answer.text === '') happened.push('in flight: answered');
      answer.text += part.toString();
    });
    socket.on('error', () => undefined);
    socket.write(
      `POST /api/v1/ingest HTTP/1.1\r\nHost: x\r\nX-API-Key: ${tenant.apiKey}\r\n` +
        `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body.slice(0, 20)}`,
    );
    // A later request on another connection is answered: the first one has reached the server by then.
    await oracle.send(tenant, { rows: 1, isKeyed: true });

    const stopped = api.stop().then((code) => happened.push(`exit ${code}`));
    await waitFor('new connections to be refused', async () => refusesConnections(api.port));
    happened.push('intake closed');
    await waitFor('the stream to be ended', () => !reader.isConnected);
    happened.push('streams ended');
    socket.write(body.slice(20));
    await stopped;
    expect(happened).toEqual(['intake closed', 'streams ended', 'in flight: answered', 'exit 0']);
    expect(answer.text).toMatch(/^HTTP\/1\.1 200 .*"received":1/s);

    await rig.waitForRest();
    const [row] = await rig.selectRows<{ entries: string }>(
      "SELECT count() AS entries FROM logs WHERE service = 'late' AND project_id = {project:UUID}",
      { project: tenant.projectId },
    );
    expect(row?.entries).toBe('1');
    expect(api.output()).not.toMatch(/"level":(50|60)/);
  });
});

async function refusesConnections(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return false;
  } catch {
    return true;
  } finally {
    socket.destroy();
  }
}
