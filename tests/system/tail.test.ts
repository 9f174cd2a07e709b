import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { ApiKeys } from '@logpond/db/api-keys';
import { connectRedis } from '@logpond/db/connect';
import { ControlStore } from '@logpond/db/control-store';
import { findFreePort } from '@logpond/standalone/store-process';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { ChaosProxy } from './support/chaos-proxy.ts';
import { EventReader, parseEvent } from './support/event-reader.ts';
import { listIdsByArrival } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { chooseSeed, createRandom, pickInteger } from './support/random.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess, Tenant } from './support/rig.ts';
import { readMetric } from './support/metrics.ts';
import { loadScript } from './support/scripts.ts';

let rig: Rig;
/** The one that entries are sent to; it is not killed. */
let writing: ApiProcess;

beforeAll(async () => {
  rig = await Rig.open({ shards: 2 });
  await rig.createTenants(1);
  rig.startWorker();
  writing = await rig.startApi();
});
afterAll(async () => rig[Symbol.asyncDispose]());

async function createTenant(): Promise<Tenant> {
  const [tenant] = await rig.createTenants(1);
  if (tenant === undefined) throw new RangeError('expected a tenant');
  return tenant;
}

/** What the tail gave (ids, or the name of another event) beside what it had to give, in the order of arrival. */
async function compare(
  reader: EventReader,
  tenant: Tenant,
): Promise<{ received: string[]; expected: string[] }> {
  await rig.waitForRest();
  const expected = await listIdsByArrival(rig, tenant);
  await waitFor('the tail to catch up', () => reader.logs.at(-1)?.id === expected.at(-1)).catch(
    () => undefined,
  );
  const received = reader.events.map(({ event, id = '' }) => (event === 'log' ? id : event));
  process.stdout.write(
    `tail: ${received.length} of ${expected.length} over ${reader.connections} connections\n`,
  );
  return { received, expected };
}

describe('an open tail', () => {
  it('gets an entry that is sent as soon as its answer has begun', async () => {
    const tenant = await createTenant();
    await using proxy = await ChaosProxy.open(rig.redis.options.port ?? 0);
    const api = await rig.startApi({ REDIS_URL: proxy.redirect(rig.env['REDIS_URL'] ?? '') });
    const oracle = new Oracle({ run: 'first', tenants: [tenant], url: writing.url });
    let reader: EventReader | undefined;
    const sprung = proxy.arm({
      pattern: await loadScript(rig.redis, 'watch'),
      at: 'request',
      action: async () => {
        // An answer that begins before the watch stands would begin now.
        await waitFor('the answer', () => reader?.isConnected, 500).catch(() => undefined);
        if (reader?.isConnected === true) await oracle.send(tenant, { rows: 1, isKeyed: true });
        return 'forward';
      },
    });
    reader = new EventReader({ url: api.url, apiKey: tenant.apiKey });
    await using _ = reader;
    await sprung;
    await waitFor('the answer', () => reader.isConnected);
    await oracle.send(tenant, { rows: 1, isKeyed: true });
    const { received, expected } = await compare(reader, tenant);
    expect(received).toEqual(expected);
    await api.kill();
  });

  it('F38: has no hole and no repetition when its API is killed and started again while entries flow', async () => {
    const random = createRandom(chooseSeed('F38'));
    const tenant = await createTenant();
    const oracle = new Oracle({ run: 'restart', tenants: [tenant], url: writing.url });
    let api = await rig.startApi();
    await using reader = new EventReader({ url: api.url, apiKey: tenant.apiKey });
    await waitFor('the stream to be open', () => reader.isConnected);
    await using load = oracle.startLoad({ concurrency: 3, rowsPerRequest: 10, pauseMs: 5, isKeyed: true });
    for (let kill = 0; kill < 3; kill += 1) {
      const before = reader.logs.length;
      await waitFor('events to flow', () => reader.isConnected && reader.logs.length > before + 50);
      await delay(pickInteger(random, 0, 300));
      await api.kill();
      api = await rig.startApi({}, api.port);
    }
    await waitFor('the reader to be back', () => reader.connections === 4);
    await load.stop();
    const { received, expected } = await compare(reader, tenant);
    expect(received).toEqual(expected);
    await api.kill();
  });

  it('F39: has no hole and no repetition when Redis drops its subscriber while entries flow', async () => {
    const tenant = await createTenant();
    const oracle = new Oracle({ run: 'dropped', tenants: [tenant], url: writing.url });
    const api = await rig.startApi();
    await using reader = new EventReader({ url: api.url, apiKey: tenant.apiKey });
    await waitFor('the stream to be open', () => reader.isConnected);
    await using load = oracle.startLoad({ concurrency: 3, rowsPerRequest: 10, pauseMs: 5, isKeyed: true });
    for (let drop = 0; drop < 5; drop += 1) {
      const before = reader.logs.length;
      await waitFor('events to flow', () => reader.logs.length > before + 50);
      await rig.redis.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    }
    await load.stop();
    const { received, expected } = await compare(reader, tenant);
    expect(received).toEqual(expected);
    expect(reader.connections).toBe(1);
    await api.kill();
  });

  it('F39: has no hole and no repetition when it stalls until Redis drops its subscriber', async () => {
    const [tenant, loud] = await rig.createTenants(2);
    if (tenant === undefined || loud?.shard !== tenant.shard) throw new RangeError('expected two of a shard');
    const oracle = new Oracle({ run: 'stalled', tenants: [tenant], url: writing.url });
    const flood = new Oracle({ run: 'loud', tenants: [loud], url: writing.url, noiseBytes: 16_000 });
    const api = await rig.startApi();
    await using reader = new EventReader({ url: api.url, apiKey: tenant.apiKey });
    // Its project has readers too: all that comes to it lies in the same subscription.
    await using other = new EventReader({ url: api.url, apiKey: loud.apiKey });
    await waitFor('the streams to be open', () => reader.isConnected && other.isConnected);
    await oracle.send(tenant, { rows: 10, isKeyed: true });
    await waitFor('the first events', () => reader.logs.length === 10);
    await rig.redis.config('SET', 'client-output-buffer-limit', 'pubsub 1mb 1mb 0');
    rig.pause(api);
    await waitFor('Redis to drop the subscriber', async () => {
      await oracle.send(tenant, { rows: 10, isKeyed: true });
      await flood.send(loud, { rows: 40, isKeyed: true });
      return !/ ssub=[1-9]/.test(String(await rig.redis.client('LIST', 'TYPE', 'PUBSUB')));
    });
    rig.resume(api);
    const { received, expected } = await compare(reader, tenant);
    expect(received).toEqual(expected);
    expect(reader.connections).toBe(1);
    await api.kill();
  });

  it('F39: loses nothing when the very last messages go to a dropped subscriber', async () => {
    const tenant = await createTenant();
    const oracle = new Oracle({ run: 'last', tenants: [tenant], url: writing.url });
    const api = await rig.startApi();
    await using reader = new EventReader({ url: api.url, apiKey: tenant.apiKey });
    await waitFor('the stream to be open', () => reader.isConnected);
    await oracle.send(tenant, { rows: 10, isKeyed: true });
    await waitFor('the first events', () => reader.logs.length === 10);
    await rig.redis.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await oracle.send(tenant, { rows: 10, isKeyed: true });
    const { received, expected } = await compare(reader, tenant);
    expect(received).toEqual(expected);
    await api.kill();
  });
});

describe('F40: a key revoked while its stream is open', () => {
  it('ends that stream within 5 s, revoked by another process; one with another key goes on', async () => {
    const tenant = await createTenant();
    await using redis = await connectRedis({
      REDIS_URL: rig.env['REDIS_URL'] ?? '',
      KEY_PREFIX: 'lp',
      SHARDS: rig.shards,
      REDIS_BUDGET_BYTES: 1_073_741_824,
    });
    await using apiKeys = new ApiKeys(new ControlStore(redis));
    const actor = { kind: 'system' } as const;
    const brief = await apiKeys.create(actor, tenant.projectId, { name: 'brief' });
    await using doomed = new EventReader({ url: writing.url, apiKey: brief.apiKey });
    await using stays = new EventReader({ url: writing.url, apiKey: tenant.apiKey });
    await waitFor('both streams to be open', () => doomed.isConnected && stays.isConnected);

    await apiKeys.revoke(actor, tenant.projectId, brief.id);
    await waitFor('the stream to end', () => !doomed.isConnected, 5_000);
    const oracle = new Oracle({ run: 'f40', tenants: [tenant], url: writing.url });
    await oracle.send(tenant, { rows: 10, isKeyed: true });
    await waitFor('the other stream to go on', () => stays.logs.length === 10);
    expect(doomed.logs).toEqual([]);
    expect([doomed.connections, stays.connections]).toEqual([1, 1]);
  });
});

const BIG_ENTRIES = 2_400;
/** 154 MB: the kernel's buffers of one connection may grow to 38 MB before anything waits in the API. */
const UNREAD_ENTRIES = 9_600;
/** All but what the kernel's buffers and the reader's queue may hold. */
const DROPPED_MIN = 6_000;
const BIG_BATCH = 48;
const BIG_MESSAGE_BYTES = 16_000;
const GROWTH_BYTES_MAX = 96 * 1024 * 1024;

describe('F36: a reader that does not read', () => {
  it('costs its API bounded memory, and is told how many entries it was not sent', async () => {
    const tenant = await createTenant();
    const metricsPort = await findFreePort();
    const api = await rig.startApi({ METRICS_PORT: String(metricsPort) });
    const warm = new EventReader({ url: api.url, apiKey: tenant.apiKey });
    await waitFor('the stream to be open', () => warm.isConnected);
    await sendBig(tenant, 'warm-up');
    await sendBig(tenant, 'warm', 1);
    await waitFor('the reader to be through', () => warm.logs.at(-1)?.data.includes('"service":"warm"'));
    await warm[Symbol.asyncDispose]();
    const before = readResidentBytes(api);

    const socket = await openStream(api, tenant);
    socket.pause();
    await sendBig(tenant, 'unread', UNREAD_ENTRIES);
    // Until then the API may only be behind, with little that waits for the reader.
    await waitFor('entries to be dropped', async () => {
      const dropped = await readMetric(metricsPort, 'logpond_api_tail_dropped_entries_total');
      return (dropped.get('reason="slow_reader"') ?? 0) >= DROPPED_MIN;
    });
    const growth = readResidentBytes(api) - before;
    process.stdout.write(`F36: ${(growth / 1024 ** 2).toFixed(0)} MiB more with an unread tail\n`);
    expect(growth).toBeLessThan(GROWTH_BYTES_MAX);

    await sendBig(tenant, 'end', 1);
    const counts = await readCounts(socket);
    socket.destroy();
    expect(counts.dropped).toBeGreaterThanOrEqual(DROPPED_MIN);
    expect(counts.received + counts.dropped).toBe(UNREAD_ENTRIES + 1);
    await api.kill();
  });
});

async function sendBig(tenant: Tenant, service: string, entries = BIG_ENTRIES): Promise<void> {
  for (let sent = 0; sent < entries; sent += BIG_BATCH) {
    const message = 'x'.repeat(BIG_MESSAGE_BYTES);
    const logs = Array.from({ length: Math.min(BIG_BATCH, entries - sent) }, () => ({
      service,
      level: 'info',
      message,
    }));
    const answer = await fetch(`${writing.url}/api/v1/ingest`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-API-Key': tenant.apiKey },
      body: JSON.stringify({ logs }),
    });
    expect(answer.status).toBe(200);
  }
}

function readResidentBytes(api: ApiProcess): number {
  const status = readFileSync(`/proc/${api.child.pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? Number.NaN) * 1024;
}

/** A stream on a bare socket, open and live. */
async function openStream(api: ApiProcess, tenant: Tenant): Promise<Socket> {
  const socket = connect(api.port, '127.0.0.1');
  await once(socket, 'connect');
  socket.write(`GET /api/v1/logs/stream HTTP/1.1\r\nHost: x\r\nX-API-Key: ${tenant.apiKey}\r\n\r\n`);
  await once(socket, 'readable');
  return socket;
}

/** Reads on until the entry of service `end`. */
async function readCounts(socket: Socket): Promise<{ received: number; dropped: number }> {
  const counts = { received: 0, dropped: 0 };
  let text = '';
  for await (const part of socket.setEncoding('utf8') as AsyncIterable<string>) {
    const blocks = (text + part.replaceAll(/\r\n(?:[0-9a-f]+\r\n)?/g, '')).split('\n\n');
    text = blocks.pop() ?? '';
    for (const event of blocks.map(parseEvent)) {
      if (event?.event === 'gap') counts.dropped += (JSON.parse(event.data) as { dropped: number }).dropped;
      if (event?.event === 'log') counts.received += 1;
      if (event?.event === 'log' && event.data.includes('"service":"end"')) return counts;
    }
  }
  throw new Error('the stream ended before its last entry');
}
