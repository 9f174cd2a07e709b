import { replayDeadLetter } from '@logpond/api/replay-dead-letter';
import { connectRedis } from '@logpond/db/connect';
import type { RedisStore } from '@logpond/db/connect';
import { DeadLetters } from '@logpond/db/dead-letters';
import type { DeadLetter, DeadLetterBurial } from '@logpond/db/dead-letters';
import { shardKeys, shardOf } from '@logpond/db/shard-map';
import { StoreError } from '@logpond/db/store-error';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

type Page = { deadLetters: DeadLetter[]; nextCursor: string | null };
type Receipt = { received: number; rejected?: { index: number; message: string }[]; rejectedCount?: number };

const SHARDS = 2;
const DAY_MS = 86_400_000;

let api: ContractApi;
let tenant: TestTenant;
let other: TestTenant;
let redis: RedisStore;
let letters: DeadLetters;
beforeAll(async () => {
  api = await openContractApi();
  tenant = await api.createTenant('dead');
  other = await api.createTenant('dead-other');
  redis = await connectRedis({
    REDIS_URL: api.stores.redis.url,
    KEY_PREFIX: 'lp',
    SHARDS,
    REDIS_BUDGET_BYTES: 268_435_456,
  });
  letters = new DeadLetters(redis);
});
afterAll(async () => {
  await redis[Symbol.asyncDispose]();
  await api[Symbol.asyncDispose]();
});

/** Buries as the worker that owns the project's shard does. */
async function bury(of: TestTenant, rest: Partial<DeadLetterBurial> & { id: string }): Promise<void> {
  const shard = shardOf(of.projectId, SHARDS);
  const fence = await waitFor(
    'the shard to have an owner',
    async () => (await redis.client.hget(shardKeys('lp', shard).state, 'ingest:fence')) ?? undefined,
  );
  const outcome = await letters.bury(shard, fence, {
    projectId: of.projectId,
    reason: 'refused_by_store',
    detail: 'code 469: violated',
    entries: 1,
    firstOffset: 1,
    createdAtMs: Date.now(),
    payload: renderLines([lineOf(rest.id)]),
    isReadable: true,
    ...rest,
  });
  expect(outcome).toBe('buried');
}

function lineOf(message: string, atMs = Date.now()): string {
  const metadata = '{"big":12345678901234567890,"deep":{"n":null}}';
  return `{"time":"${new Date(atMs).toISOString()}","service":"dead","level":"error","message":"${message}","metadata":${metadata}}`;
}

function renderLines(lines: readonly string[]): Buffer {
  return Buffer.from(lines.map((line) => `${line}\n`).join(''));
}

async function call(
  method: string,
  path: string,
  by: TestTenant = tenant,
  of: TestTenant = by,
): Promise<Response> {
  const route = `/projects/${of.projectId}/dead-letters${path}`;
  return method === 'DELETE'
    ? api.call(method, route, { session: by.sessionToken })
    : api.call(method, route, { key: by.apiKey });
}

async function listIds(of: TestTenant = tenant): Promise<string[]> {
  return (await expectJson<Page>(await call('GET', '', of))).deadLetters.map(({ id }) => id);
}

/** Texts of the stored entries whose message begins with this word, metadata as it was sent. */
async function readStored(word: string, of: TestTenant = tenant): Promise<string[]> {
  const answer = await api.call('GET', `/logs?q=${word}&limit=1000`, { key: of.apiKey });
  return [...(await answer.text()).matchAll(/"message":"([^"]*)","metadata":(\{"big":\d+)/g)].map(
    ([, message = '', metadata = '']) => `${message} ${metadata}`,
  );
}

/** Replays a letter until Redis is out of reach: the last of these parts is not confirmed, stored or not. */
async function breakOff(
  id: string,
  { parts, isStored }: { parts: number; isStored: boolean },
): Promise<void> {
  const content = await letters.read(tenant.projectId, id);
  if (content === undefined) throw new RangeError(`expected a letter ${id}`);
  let sent = 0;
  const submit: typeof api.deps.flush.submit = async (request) => {
    sent += 1;
    if (sent < parts) return api.deps.flush.submit(request);
    if (isStored) await api.deps.flush.submit(request);
    throw new StoreError('redis', 'unavailable', 'out of reach');
  };
  await replayDeadLetter(content, 30 * DAY_MS, { flush: { submit }, deadLetters: letters });
}

/** As after an hour. */
async function forgetKeys(): Promise<void> {
  const keys = await redis.client.keys('lp:*:idem:*');
  expect(keys.length).toBeGreaterThan(0);
  for (const key of keys) await redis.client.del(key);
}

/** Waits until all that was sent is stored. */
async function countStored(word: string): Promise<number> {
  await waitFor('all to be stored', async () => {
    return (await api.deps.stream.readBacklog(tenant.projectId)).entries === 0;
  });
  const page = await api.call('GET', `/logs?q=${word}&limit=1`, { key: tenant.apiKey });
  return ((await page.json()) as { total: number }).total;
}

describe('pipeline §4: dead letters', () => {
  it('are listed newest first and page by page, downloaded as they would be sent, and deleted', async () => {
    for (const id of ['1-0-1-1', '1-0-2-1', '1-0-3-1'])
      await bury(tenant, { id, createdAtMs: Date.now() + Number(id[4]) });
    const first = await expectJson<Page>(await call('GET', '?limit=2'));
    expect(first.deadLetters.map(({ id }) => id)).toEqual(['1-0-3-1', '1-0-2-1']);
    expect(first.deadLetters[0]).toEqual({
      id: '1-0-3-1',
      projectId: tenant.projectId,
      reason: 'refused_by_store',
      detail: 'code 469: violated',
      entries: 1,
      bytes: renderLines([lineOf('1-0-3-1')]).length,
      createdAt: expect.stringMatching(/Z$/) as string,
    });
    const second = await expectJson<Page>(await call('GET', `?limit=2&cursor=${first.nextCursor ?? ''}`));
    expect([second.deadLetters.map(({ id }) => id), second.nextCursor]).toEqual([['1-0-1-1'], null]);
    const download = await call('GET', '/1-0-2-1');
    expect([download.status, download.headers.get('content-type')]).toEqual([200, 'application/x-ndjson']);
    expect(JSON.parse(await download.text())).toMatchObject({ service: 'dead', message: '1-0-2-1' });
    for (const id of await listIds()) expect((await call('DELETE', `/${id}`)).status).toBe(204);
    expect(await listIds()).toEqual([]);
    await expectError(await call('DELETE', '/1-0-1-1'), 404, 'NOT_FOUND');
  });

  it('a replay stores every entry once and exactly, answers with the receipt, and the letter is gone', async () => {
    const lines = Array.from({ length: 2_500 }, (_, n) => lineOf(`replayed ${n}`));
    await bury(tenant, { id: 'whole', entries: lines.length, payload: renderLines(lines) });
    const receipt = await expectJson<Receipt>(await call('POST', '/whole/replay'));
    expect([receipt.received, receipt.rejectedCount]).toEqual([2_500, undefined]);
    expect(await listIds()).toEqual([]);
    await expectError(await call('POST', '/whole/replay'), 404, 'NOT_FOUND');
    await waitFor('all to be found', async () => {
      const page = await api.call('GET', '/logs?q=replayed&limit=1', { key: tenant.apiKey });
      return ((await page.json()) as { total: number }).total === 2_500;
    });
    expect((await readStored('replayed'))[0]).toContain('{"big":12345678901234567890');
  });

  it('a replay that is repeated after its letter came back stores nothing twice', async () => {
    const payload = renderLines([lineOf('twice a'), lineOf('twice b')]);
    for (let round = 0; round < 2; round += 1) {
      await bury(tenant, { id: 'again', entries: 2, payload });
      expect((await expectJson<Receipt>(await call('POST', '/again/replay'))).received).toBe(2);
    }
    await bury(tenant, { id: 'last', payload: renderLines([lineOf('last one')]) });
    await expectJson(await call('POST', '/last/replay'));
    await waitFor('what came last to be found', async () => (await readStored('last')).length === 1);
    expect(await readStored('twice')).toHaveLength(2);
  });

  it('a replay that broke off goes on where it was, also when its keys are forgotten: nothing is stored twice', async () => {
    const lines = Array.from({ length: 2_500 }, (_, n) => lineOf(`broken ${n}`));
    await bury(tenant, { id: 'broken', entries: lines.length, payload: renderLines(lines) });
    await expect(breakOff('broken', { parts: 3, isStored: false })).rejects.toThrow('out of reach');
    expect((await letters.read(tenant.projectId, 'broken'))?.letter.entries).toBe(1_000);
    await forgetKeys();
    expect((await expectJson<Receipt>(await call('POST', '/broken/replay'))).received).toBe(1_000);
    expect(await listIds()).toEqual([]);
    expect(await countStored('broken')).toBe(2_500);
  });

  it('the part in hand when a replay broke off is stored once, whatever was refused before it', async () => {
    // The same line everywhere, so that only their places tell the parts apart.
    const same = lineOf('unsure');
    const old = lineOf('old', Date.now() - 400 * DAY_MS);
    const lines = Array.from({ length: 2_500 }, (_, n) => (n % 100 === 7 ? old : same));
    await bury(tenant, { id: 'unsure', entries: lines.length, payload: renderLines(lines) });
    // 500 lines, and of the next 1,000 nobody knows; then the refused 5, those 1,000, and of the last nobody knows.
    for (const { parts, left } of [
      { parts: 2, left: 2_005 },
      { parts: 3, left: 1_015 },
    ]) {
      await expect(breakOff('unsure', { parts, isStored: true })).rejects.toThrow('out of reach');
      expect((await letters.read(tenant.projectId, 'unsure'))?.letter.entries).toBe(left);
    }
    const receipt = await expectJson<Receipt>(await call('POST', '/unsure/replay'));
    expect([receipt.received, receipt.rejectedCount]).toEqual([990, 25]);
    expect((await letters.read(tenant.projectId, 'unsure'))?.letter.entries).toBe(25);
    expect(await countStored('unsure')).toBe(2_475);
    await call('DELETE', '/unsure');
  });

  it('entries that are refused now stay in the letter and are named; the others are stored', async () => {
    const now = Date.now();
    const lines = Array.from({ length: 60 }, (_, n) =>
      n % 2 === 0 ? lineOf(`partly ${n}`) : lineOf(`old ${n}`, now - 400 * DAY_MS),
    );
    await bury(tenant, { id: 'partly', entries: 60, payload: renderLines(lines) });
    const receipt = await expectJson<Receipt>(await call('POST', '/partly/replay'));
    expect([receipt.received, receipt.rejectedCount]).toEqual([30, 30]);
    expect(receipt.rejected?.slice(0, 3).map(({ index }) => index)).toEqual([1, 3, 5]);
    const page = await expectJson<Page>(await call('GET', ''));
    expect(page.deadLetters.map(({ id, entries }) => [id, entries])).toEqual([['partly', 30]]);
    const left = (await (await call('GET', '/partly')).text()).trimEnd().split('\n');
    expect(left).toEqual(lines.filter((_, n) => n % 2 === 1));
    // Now all that is left is refused: nothing changes.
    const error = await expectError(await call('POST', '/partly/replay'), 400, 'VALIDATION_ERROR');
    expect([error.details?.length, error.details?.[0]?.index]).toEqual([20, 0]);
    expect(await listIds()).toEqual(['partly']);
    await waitFor('the others to be found', async () => (await readStored('partly')).length === 30);
    await call('DELETE', '/partly');
  });

  it('of a damaged block the letter is seen, but its bytes never leave: 409', async () => {
    const damaged = { reason: 'damaged_block', isReadable: false, payload: Buffer.from([1, 2, 3]) } as const;
    await bury(tenant, { id: 'raw', ...damaged });
    expect(await listIds()).toEqual(['raw']);
    for (const [method, path] of [
      ['GET', '/raw'],
      ['POST', '/raw/replay'],
    ] as const) {
      expect((await expectError(await call(method, path), 409, 'CONFLICT')).error).toContain('damaged');
    }
    expect((await call('DELETE', '/raw')).status).toBe(204);
  });
});

describe('who may see and touch a dead letter', () => {
  it("404 for another tenant's letter, by key and by session, and for ids that are none", async () => {
    await bury(other, { id: 'foreign' });
    await expectError(await call('GET', '/foreign'), 404, 'NOT_FOUND');
    for (const [method, path] of [
      ['GET', ''],
      ['GET', '/foreign'],
      ['POST', '/foreign/replay'],
      ['DELETE', '/foreign'],
    ] as const) {
      await expectError(await call(method, path, tenant, other), 404, 'NOT_FOUND');
      const route = `/projects/${other.projectId}/dead-letters${path}`;
      const bySession = await api.call(method, route, { session: tenant.sessionToken });
      await expectError(bySession, 404, 'NOT_FOUND');
    }
    for (const id of ['%2e%2e', 'a.b', 'x'.repeat(101), '%00']) {
      expect([id, (await call('GET', `/${id}`)).status]).toEqual([id, 404]);
    }
    expect(await listIds(other)).toEqual(['foreign']);
  });

  it('a key needs the scope query to look, ingest to replay, and can never delete; an admin may all', async () => {
    const keyWith = async (scope: 'ingest' | 'query'): Promise<string> =>
      (await api.deps.apiKeys.create({ kind: 'system' }, tenant.projectId, { name: scope, scopes: [scope] }))
        .apiKey;
    await bury(tenant, { id: 'guarded' });
    const route = `/projects/${tenant.projectId}/dead-letters/guarded`;
    const [ingest, query] = [await keyWith('ingest'), await keyWith('query')];
    await expectError(await api.call('GET', route, { key: ingest }), 403, 'INSUFFICIENT_SCOPE');
    await expectError(await api.call('POST', `${route}/replay`, { key: query }), 403, 'INSUFFICIENT_SCOPE');
    await expectError(await api.call('DELETE', route, { key: ingest }), 401, 'INVALID_TOKEN');
    expect((await api.call('GET', route, { key: query })).status).toBe(200);
    const session = tenant.sessionToken;
    expect((await api.call('GET', route, { session })).status).toBe(200);
    expect((await api.call('POST', `${route}/replay`, { session })).status).toBe(200);
    expect((await api.call('GET', route, { session })).status).toBe(404);
  });

  it('400 for a cursor or limit that is none', async () => {
    for (const query of ['?cursor=x', '?limit=0', '?limit=101', '?limit=x'])
      expect([query, (await expectError(await call('GET', query), 400, 'VALIDATION_ERROR')).code]).toEqual([
        query,
        'VALIDATION_ERROR',
      ]);
  });
});
