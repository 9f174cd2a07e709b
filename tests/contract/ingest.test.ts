import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { CallInit, ContractApi, TestTenant } from './contract-fixture.ts';

/** A script of Redis takes about 8,000 arguments at once. */
const PROJECTS = 8_200;
const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

type Receipt = {
  received: number;
  timestamp: string;
  rejected?: { index: number; code: string; message: string }[];
  rejectedCount?: number;
};

let api: ContractApi;
let tenant: TestTenant;
beforeAll(async () => {
  api = await openContractApi({}, { hasWorker: true });
  tenant = await api.createTenant('ingest');
});
afterAll(async () => api[Symbol.asyncDispose]());

const entry = { service: 'web', level: 'info', message: 'hello' };

async function ingest(init: CallInit): Promise<Response> {
  return api.call('POST', '/ingest', { key: tenant.apiKey, ...init });
}

async function receipt(init: CallInit): Promise<Receipt> {
  return expectJson<Receipt>(await ingest(init));
}

describe('interface 3: POST /ingest', () => {
  it('200 {received, timestamp} for {"logs": […]}', async () => {
    const answer = await receipt({ json: { logs: [{ ...entry, time: new Date().toISOString() }, entry] } });
    expect(answer).toEqual({ received: 2, timestamp: expect.stringMatching(ISO) as string });
  });

  it('takes 1000 entries and refuses 1001 with BATCH_TOO_LARGE that says both numbers', async () => {
    expect((await receipt({ json: { logs: Array(1_000).fill(entry) } })).received).toBe(1_000);
    const error = await expectError(
      await ingest({ json: { logs: Array(1_001).fill(entry) } }),
      400,
      'BATCH_TOO_LARGE',
    );
    expect(error.error).toMatch(/1000.*1001|1001.*1000/);
  });
});

describe('contract §3 POST /ingest: bodies', () => {
  it('a bare array, and JSON with no content type, as text/plain, with a charset', async () => {
    const body = JSON.stringify([entry]);
    expect((await receipt({ json: [entry] })).received).toBe(1);
    expect((await receipt({ body: Buffer.from(body) })).received).toBe(1);
    for (const type of ['text/plain', 'application/json; charset=utf-8', 'Application/JSON']) {
      expect((await receipt({ body, headers: { 'content-type': type } })).received).toBe(1);
    }
  });

  it('NDJSON as application/x-ndjson and application/jsonl, a bad line refused alone', async () => {
    const lines = [JSON.stringify(entry), '', 'not json', JSON.stringify(entry)].join('\r\n');
    for (const type of ['application/x-ndjson', 'application/jsonl']) {
      const answer = await receipt({ body: lines, headers: { 'content-type': type } });
      expect([answer.received, answer.rejectedCount]).toEqual([2, 1]);
    }
  });

  it('415 with the header to add for a form type and anything else', async () => {
    for (const type of [
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'application/xml',
    ]) {
      const error = await expectError(
        await ingest({ body: '{"logs":[]}', headers: { 'content-type': type } }),
        415,
        'UNSUPPORTED_MEDIA_TYPE',
      );
      expect(error.error).toContain('Content-Type: application/json');
    }
  });

  it('gzip, deflate, br and zstd by Content-Encoding', async () => {
    const body = Buffer.from(JSON.stringify({ logs: [entry] }));
    const encodings = {
      gzip: gzipSync,
      deflate: deflateSync,
      br: brotliCompressSync,
      zstd: zstdCompressSync,
    };
    for (const [encoding, compress] of Object.entries(encodings)) {
      const answer = await receipt({
        body: compress(body),
        headers: { 'content-type': 'application/json', 'content-encoding': encoding },
      });
      expect([encoding, answer.received]).toEqual([encoding, 1]);
    }
  });

  it('400 for an empty batch, an empty body, and what is no batch; INVALID_JSON for what is no JSON', async () => {
    for (const json of [{ logs: [] }, [], {}, { logs: {} }, 7, null, 'x'])
      await expectError(await ingest({ json }), 400, 'VALIDATION_ERROR');
    for (const body of ['{', '{"logs":[{]}', 'hello'])
      await expectError(await ingest({ body }), 400, 'INVALID_JSON');
    const empty = await ingest({ body: '' });
    expect(empty.status).toBe(400);
  });
});

describe('contract §3 POST /ingest: entries', () => {
  it('good entries are stored, bad ones are named with index, code and message', async () => {
    const logs = [
      entry,
      { ...entry, level: 'loud' },
      { ...entry, service: 'x'.repeat(101) },
      { ...entry, level: 'ERROR' },
      17,
    ];
    const answer = await receipt({ json: { logs } });
    expect([answer.received, answer.rejectedCount, answer.rejected?.map(({ index }) => index)]).toEqual([
      2,
      3,
      [1, 2, 4],
    ]);
    for (const one of answer.rejected ?? [])
      expect([typeof one.code, one.message.length > 5]).toEqual(['string', true]);
  });

  it('names the first 20 of many and counts all', async () => {
    const answer = await receipt({
      json: { logs: [entry, ...Array.from({ length: 500 }, () => ({ ...entry, level: 'x'.repeat(500) }))] },
    });
    expect([answer.received, answer.rejectedCount, answer.rejected?.length]).toEqual([1, 500, 20]);
    expect(JSON.stringify(answer).length).toBeLessThan(8_000);
  });

  it('400 with indexes when every entry is refused, and with Prefer: handling=strict when one is', async () => {
    const bad = { ...entry, message: undefined };
    const all = await expectError(await ingest({ json: { logs: [bad, bad] } }), 400, 'VALIDATION_ERROR');
    expect(all.details?.map(({ index }) => index)).toEqual([0, 1]);
    const strict = await ingest({
      json: { logs: [entry, bad] },
      headers: { prefer: 'return=minimal, handling=strict' },
    });
    expect((await expectError(strict, 400, 'VALIDATION_ERROR')).details?.[0]?.index).toBe(1);
    const lenient = await receipt({ json: { logs: [entry, bad] }, headers: { prefer: 'handling=lenient' } });
    expect(lenient.received).toBe(1);
  });

  it('time: alias, offsets and 0-9 digits are taken; outside [now - retention, now + 10 min] and nonsense refused', async () => {
    const now = Date.now();
    const iso = (ms: number): string => new Date(ms).toISOString();
    const good = [
      iso(now),
      iso(now).slice(0, 19),
      iso(now).replace('Z', '123456+00:00'),
      iso(now + 9 * 60_000),
      iso(now - 29 * 86_400_000),
    ];
    const bad = [
      iso(now + 11 * 60_000),
      iso(now - 31 * 86_400_000),
      'yesterday',
      '2026-13-01T00:00:00Z',
      '1600-01-01T00:00:00Z',
      '9999-12-31T23:59:59Z',
    ];
    expect((await receipt({ json: good.map((time) => ({ ...entry, time })) })).received).toBe(good.length);
    expect((await receipt({ json: [{ ...entry, timestamp: iso(now) }] })).received).toBe(1);
    const refused = await receipt({ json: [entry, ...bad.map((time) => ({ ...entry, time }))] });
    expect(refused.rejectedCount).toBe(bad.length);
  });

  it('message: "" is taken, 65,536 bytes are taken, one more is refused with its index', async () => {
    const logs = [
      { ...entry, message: '' },
      { ...entry, message: 'é'.repeat(32_768) },
      { ...entry, message: `${'é'.repeat(32_768)}x` },
    ];
    const answer = await receipt({ json: { logs } });
    expect([answer.received, answer.rejected?.map(({ index }) => index)]).toEqual([2, [2]]);
  });
});

describe('contract §3 POST /ingest: Idempotency-Key', () => {
  it('same key and bytes: the first receipt, Idempotency-Replayed, also compressed; other bytes 422', async () => {
    const headers = { 'idempotency-key': 'batch 1', 'content-type': 'application/json' };
    const body = JSON.stringify([{ ...entry, message: 'once' }]);
    const first = await ingest({ body, headers });
    expect(first.headers.get('idempotency-replayed')).toBeNull();
    const text = await first.text();
    const again = await ingest({ body: gzipSync(body), headers: { ...headers, 'content-encoding': 'gzip' } });
    expect(again.headers.get('idempotency-replayed')).toBe('true');
    expect([again.status, await again.text()]).toEqual([200, text]);
    await expectError(await ingest({ body: `${body} `, headers }), 422, 'IDEMPOTENCY_MISMATCH');
  });

  it('is per project, and only a 200 is remembered', async () => {
    const other = await api.createTenant('ingest-other');
    const headers = { 'idempotency-key': 'shared' };
    expect((await ingest({ json: [entry], headers })).status).toBe(200);
    const foreign = await api.call('POST', '/ingest', {
      key: other.apiKey,
      json: [{ ...entry, message: 'other' }],
      headers,
    });
    expect([foreign.status, foreign.headers.get('idempotency-replayed')]).toEqual([200, null]);
    const failed = { 'idempotency-key': 'failed' };
    await expectError(await ingest({ json: [], headers: failed }), 400, 'VALIDATION_ERROR');
    expect((await ingest({ json: [entry], headers: failed })).status).toBe(200);
  });

  it('400 for a key that is not 1-255 printable ASCII characters', async () => {
    for (const key of ['', 'x'.repeat(256), 'h\u00e9']) {
      const refused = await ingest({ json: [entry], headers: { 'idempotency-key': key } });
      expect((await expectError(refused, 400, 'VALIDATION_ERROR')).error).toContain('Idempotency-Key');
    }
  });

  it('of 20 parallel repetitions one is stored', async () => {
    const headers = { 'idempotency-key': 'race' };
    const answers = await Promise.all(
      Array.from({ length: 20 }, async () => ingest({ json: [{ ...entry, message: 'race' }], headers })),
    );
    const stored = answers.filter(
      (answer) => answer.status === 200 && answer.headers.get('idempotency-replayed') === null,
    );
    expect(stored).toHaveLength(1);
    expect(answers.every((answer) => answer.status === 200 || answer.status === 409)).toBe(true);
  });
});

describe('pipeline §3: one flush', () => {
  it('is all stored when more projects send at once than a script has room for', async () => {
    const { flush, stream } = api.deps;
    const shard = stream.shardOf(tenant.projectId);
    const projectIds: string[] = [];
    while (projectIds.length < PROJECTS) {
      const projectId = crypto.randomUUID();
      if (stream.shardOf(projectId) === shard) projectIds.push(projectId);
    }
    const body = Buffer.from(JSON.stringify([{ service: 'w', level: 'info', message: 'm' }]));
    const rest = { body, retentionMs: 86_400_000, format: 'json', strict: false, batchMax: 1 } as const;
    const answers = await Promise.allSettled(
      projectIds.map(async (projectId) => flush.submit({ projectId, ...rest })),
    );
    const refusals = answers.map((answer) => (answer.status === 'rejected' ? String(answer.reason) : ''));
    expect(new Set(refusals)).toEqual(new Set(['']));
  });
});
