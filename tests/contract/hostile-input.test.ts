import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

const encodings = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync, zstd: zstdCompressSync };

const BOMB = Buffer.alloc(400 * 1024 * 1024);
/** Inflating all of it takes 440 ms at least. */
const BOMB_CPU_MS_MAX = 250;

let api: ContractApi;
let tenant: TestTenant;
beforeAll(async () => {
  api = await openContractApi();
  tenant = await api.createTenant('hostile');
});
afterAll(async () => api[Symbol.asyncDispose]());

async function ingest(body: string | Uint8Array, headers: Record<string, string> = {}): Promise<Response> {
  return api.call('POST', '/ingest', {
    key: tenant.apiKey,
    body,
    headers: { 'content-type': 'application/json', ...headers },
  });
}

/** Sends raw JSON text of entries and returns what /logs gives back for the one with this service, as raw text. */
async function roundTrip(service: string, entryText: string): Promise<string> {
  expect(await expectJson(await ingest(`[${entryText}]`))).toHaveProperty('received', 1);
  const path = `/logs?service=${encodeURIComponent(service)}`;
  return waitFor('the entry', async () => {
    const text = await (await api.call('GET', path, { key: tenant.apiKey })).text();
    return text.includes('"logs":[{') ? text : undefined;
  });
}

const nested = (depth: number): string => `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`;
const entryWith = (metadata: string, service = 'x'): string =>
  `{"service":"${service}","level":"info","message":"m","metadata":${metadata}}`;

describe('security.md §7: bodies', () => {
  it('S25: a bomb in each of four encodings gets 413 for little work', async () => {
    for (const [encoding, compress] of Object.entries(encodings)) {
      const bomb = compress(BOMB);
      const before = process.cpuUsage();
      await expectError(await ingest(bomb, { 'content-encoding': encoding }), 413, 'PAYLOAD_TOO_LARGE');
      const { user, system } = process.cpuUsage(before);
      expect((user + system) / 1_000).toBeLessThan(BOMB_CPU_MS_MAX);
    }
  });

  it('S25: double encoding and unknown codings get 415, truncated and mislabelled bodies 400', async () => {
    const body = gzipSync('[{"service":"a","level":"info","message":"m"}]');
    await expectError(
      await ingest(gzipSync(body), { 'content-encoding': 'gzip, gzip' }),
      415,
      'UNSUPPORTED_MEDIA_TYPE',
    );
    await expectError(await ingest(body, { 'content-encoding': 'lz4' }), 415, 'UNSUPPORTED_MEDIA_TYPE');
    await expectError(
      await ingest(body.subarray(0, 30), { 'content-encoding': 'gzip' }),
      400,
      'VALIDATION_ERROR',
    );
    await expectError(await ingest(body, { 'content-encoding': 'zstd' }), 400, 'VALIDATION_ERROR');
    await expectError(await ingest(gzipSync(body), { 'content-encoding': 'gzip' }), 400, 'INVALID_JSON');
    const large = await expectError(
      await ingest(Buffer.alloc(11 * 1024 * 1024, ' ')),
      413,
      'PAYLOAD_TOO_LARGE',
    );
    expect(large.error).toContain('10485760');
  });

  it('S26: depth 32 is taken, 33 refused, 10,000 and 1,000,000 refused without harm', async () => {
    expect(await expectJson(await ingest(`[${entryWith(nested(32))}]`))).toHaveProperty('received', 1);
    expect((await ingest(`[${entryWith(nested(33))}]`)).status).toBe(400);
    expect((await ingest(`[${entryWith(nested(10_000))}]`)).status).toBe(400);
    expect((await ingest('['.repeat(1_000_000))).status).toBe(400);
  });

  it('S26: 256 keys are taken, 257 refused, 500,000 refused quickly; an entry over 262,144 bytes is refused', async () => {
    const keys = (count: number): string =>
      `{${Array.from({ length: count }, (_, n) => `"k${n}":1`).join(',')}}`;
    expect(await expectJson(await ingest(`[${entryWith(keys(256))}]`))).toHaveProperty('received', 1);
    expect((await ingest(`[${entryWith(keys(257))}]`)).status).toBe(400);
    const before = process.cpuUsage();
    expect((await ingest(`[${entryWith(keys(500_000))}]`)).status).toBe(400);
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / 1_000).toBeLessThan(3_000);
    expect((await ingest(`[${entryWith(`{"a":"${'x'.repeat(262_144)}"}`)}]`)).status).toBe(400);
  });

  it('invalid UTF-8 becomes U+FFFD, a BOM is tolerated', async () => {
    const bad = Buffer.concat([
      Buffer.from('[{"service":"utf8","level":"info","message":"a'),
      Buffer.from([0xff, 0xc3]),
      Buffer.from('b"}]'),
    ]);
    expect(await expectJson(await ingest(bad))).toHaveProperty('received', 1);
    expect(
      await expectJson(await ingest('\uFEFF[{"service":"bom","level":"info","message":"m"}]')),
    ).toHaveProperty('received', 1);
  });
});

describe('contract §3: metadata and strings round-trip exactly', () => {
  const cases: [string, string, string][] = [
    [
      'integers beyond 2^53 and 30 digits',
      'big',
      '{"a":9007199254740993,"b":123456789012345678901234567890,"c":-1,"d":1.5}',
    ],
    [
      '__proto__, constructor and toString as data',
      'proto',
      '{"__proto__":{"polluted":true},"constructor":1,"toString":"x"}',
    ],
    [
      'null, booleans, nesting and dots in keys',
      'nest',
      '{"n":null,"t":true,"f":false,"a.b":1,"a":{"b":[1,{"c":[]}]}}',
    ],
    [
      'NUL, bidi, zero-width, ANSI and line separators',
      'odd',
      JSON.stringify({ s: 'a\u0000b\u202e\u200b\u001b[31m\u2028\u2029é😀' }),
    ],
  ];
  for (const [name, service, metadata] of cases) {
    it(`${name}`, async () => {
      const text = await roundTrip(service, entryWith(metadata, service));
      expect(text).toContain(`"metadata":${metadata}`);
      expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
    });
  }

  it('a lone surrogate becomes U+FFFD; of two equal keys the last wins; unknown keys are folded in, never over', async () => {
    const text = await roundTrip(
      'fold',
      '{"service":"fold","level":"info","message":"a\\ud800b","metadata":{"k":1,"k":2,"host":"in"},"host":"out","extra":[1]}',
    );
    const { logs } = JSON.parse(text) as { logs: { message: string; metadata: object }[] };
    expect(logs[0]?.message).toBe('a\uFFFDb');
    expect(logs[0]?.metadata).toEqual({ k: 2, host: 'in', extra: [1] });
  });

  it('metadata null or [] is {}, null fields are absent, trace forms are kept', async () => {
    const hex = 'D1B0A1B21111422283334444AAAA6666';
    const text = await roundTrip(
      'nulls',
      `{"service":"nulls","level":"info","message":"","metadata":null,"trace_id":"${hex}","span_id":null,"session_id":"s 1"}`,
    );
    const { logs } = JSON.parse(text) as { logs: Record<string, unknown>[] };
    expect(Object.keys(logs[0] ?? {}).toSorted()).toEqual([
      'id',
      'level',
      'message',
      'metadata',
      'service',
      'session_id',
      'time',
      'trace_id',
    ]);
    expect(logs[0]).toMatchObject({ message: '', metadata: {}, trace_id: hex, session_id: 's 1' });
  });

  it('hostile names of services and 150 days in one batch are stored', async () => {
    const names = ['__proto__', 'constructor', 'a\r\nb', "x'; DROP TABLE logs --", '=cmd|calc', '../../etc'];
    const days = Array.from({ length: 25 }, (_, n) => ({
      service: 'days',
      level: 'info',
      message: 'm',
      time: new Date(Date.now() - n * 86_400_000).toISOString(),
    }));
    const logs = [...names.map((service) => ({ service, level: 'info', message: 'named' })), ...days];
    expect(
      await expectJson(await api.call('POST', '/ingest', { key: tenant.apiKey, json: { logs } })),
    ).toHaveProperty('received', logs.length);
    for (const name of names) {
      const found = await waitFor(`the entry of ${name}`, async () => {
        const page = await expectJson<{ logs: { service: string }[] }>(
          await api.call('GET', `/logs?service=${encodeURIComponent(name)}`, { key: tenant.apiKey }),
        );
        return page.logs[0];
      });
      expect(found.service).toBe(name);
    }
  });
});
