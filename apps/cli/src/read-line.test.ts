import { checkLogEntry, isRefusal } from '@logpond/schema/check-entry';
import * as schema from '@logpond/schema/log-entry';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fitsLimits, LIMITS } from './outgoing-entry.ts';
import type { OutgoingEntry } from './outgoing-entry.ts';
import type { LineRules } from './read-line.ts';
import { readLine } from './read-line.ts';
import { LEVEL_NAMES } from './level-names.ts';

const NOW_MS = Date.parse('2026-11-21T14:00:00Z');
const RULES: LineRules = {
  format: 'auto',
  service: undefined,
  sourceService: 'src',
  level: 'info',
  fields: [],
  isFromNow: false,
};

function read(text: string, rules: Partial<LineRules> = {}, inherited?: string): OutgoingEntry[] {
  return readLine({ text, part: 0 }, { ...RULES, ...rules }, { nowMs: NOW_MS, isUtc: true }, inherited)
    .entries;
}

function readOne(text: string, rules: Partial<LineRules> = {}, inherited?: string): OutgoingEntry {
  const [entry, ...more] = read(text, rules, inherited);
  if (!entry || more.length > 0) throw new Error(`expected one entry, got ${more.length + 1}`);
  return entry;
}

/** The service's own verdict on an entry; times aside, which depend on the project. */
function isAccepted(entry: OutgoingEntry): boolean {
  const context = { nowMs: NOW_MS, minTimeNs: 0n, maxTimeNs: (1n << 63n) - 1n };
  return !isRefusal(checkLogEntry(JSON.parse(JSON.stringify(entry)), context));
}

const anyLine = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 300 }),
  fc.string({ unit: 'grapheme', maxLength: 300 }),
  fc
    .constantFrom('\u0000', 'é', '😀', 'x', '"')
    .chain((unit) => fc.integer({ min: 0, max: 90_000 }).map((n) => unit.repeat(n))),
);

describe('plain lines', () => {
  it('every line becomes entries that the service accepts, and whose messages joined are the line', () => {
    fc.assert(
      fc.property(anyLine, (text) => {
        const entries = read(text, { format: 'plain' });
        expect(entries.map((entry) => entry.message).join('')).toBe(text);
        expect(entries.every((entry) => fitsLimits(entry) && isAccepted(entry))).toBe(true);
        expect(text.length < 10_000 && entries.length !== 1).toBe(false);
      }),
      { numRuns: 150 },
    );
  });

  it.each([
    ['2026-11-21 13:12:01 status installed zlib1g:amd64', '2026-11-21T13:12:01.000Z', 'info'],
    ['2026-11-21 13:12:01,123 ERROR root: broke', '2026-11-21T13:12:01.123Z', 'error'],
    ['2026-11-21T13:12:01.123456789+02:00 WARN slow', '2026-11-21T11:12:01.123456789Z', 'warn'],
    ['2026-11-21T13:12:01+0200 host kernel: x', '2026-11-21T11:12:01.000Z', 'info'],
    ['[2026-11-21 13:12:01] app.CRITICAL: x', '2026-11-21T13:12:01.000Z', 'critical'],
    ['2026/11/21 13:12:01 [error] 12#12: *1 open() failed', '2026-11-21T13:12:01.000Z', 'error'],
    ['Nov 21 13:12:01 host sshd[12]: fatal: no matching key', '2026-11-21T13:12:01.000Z', 'critical'],
    ['Dec  1 13:12:01 host cron[1]: job', '2025-12-01T13:12:01.000Z', 'info'],
    ['Start-Date: 2026-11-21  13:12:01', '2026-11-21T13:12:01.000Z', 'info'],
    ['10.0.0.1 - - [21/Nov/2026:13:12:01 +0100] "GET / HTTP/1.1" 200 5', '2026-11-21T12:12:01.000Z', 'info'],
    ['12 verbose cli /usr/bin/node', '2026-11-21T14:00:00.000Z', 'debug'],
    ['\u001B[31m2026-11-21T13:12:01Z ERROR\u001B[39m red', '2026-11-21T13:12:01.000Z', 'error'],
    ['2026-02-30 13:12:01 no such day', '2026-11-21T14:00:00.000Z', 'info'],
    ['2026-11-21 13:12:01 status installed libc-debug:amd64 1.0-ERROR', '2026-11-21T13:12:01.000Z', 'info'],
    ['no error at all in lower case', '2026-11-21T14:00:00.000Z', 'info'],
  ])('%s', (text, time, level) => {
    expect(readOne(text)).toMatchObject({ message: text, time, level });
  });

  it('a line without a time takes the inherited one, its service from the syslog tag or the source', () => {
    expect(readOne('    at main.js:1', {}, '2026-11-21T13:00:00.000Z').time).toBe('2026-11-21T13:00:00.000Z');
    expect(readOne('Nov 21 13:12:01 host sshd[12]: hello').service).toBe('sshd');
    expect(readOne('hello').service).toBe('src');
    expect(readOne('hello', { service: 'mine' }).service).toBe('mine');
  });

  it('--from-now gives the time of reading and keeps the own one', () => {
    const entry = readOne('2026-01-01 00:00:00 old', { isFromNow: true });
    expect(entry).toMatchObject({
      time: '2026-11-21T14:00:00.000Z',
      metadata: { original_time: '2026-01-01T00:00:00.000Z' },
    });
  });
});

describe('JSON lines', () => {
  it('every object becomes entries that the service accepts, and that hold every text value', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (object) => {
        const text = JSON.stringify(object);
        const entries = read(text);
        expect(entries.every((entry) => fitsLimits(entry) && isAccepted(entry))).toBe(true);
        const sent = JSON.stringify(entries);
        const texts = Object.values(object).filter((value) => typeof value === 'string');
        expect(texts.filter((value) => !sent.includes(JSON.stringify(value).slice(1, -1)))).toEqual([]);
      }),
    );
  });

  it('maps pino: number levels, epoch ms, name; keeps the number', () => {
    const text =
      '{"level":50,"time":1763730721123,"pid":7,"hostname":"h","name":"shop","msg":"failed","traceId":"abc"}';
    expect(readOne(text)).toEqual({
      level: 'error',
      time: '2025-11-21T13:12:01.123Z',
      service: 'shop',
      message: 'failed',
      trace_id: 'abc',
      metadata: expect.objectContaining({ level: 50, pid: 7, hostname: 'h' }) as unknown,
    });
  });

  it('maps journalctl -o json: microseconds, priority, identifier, bytes as MESSAGE', () => {
    const text =
      '{"__REALTIME_TIMESTAMP":"1763730721123456","PRIORITY":"4","SYSLOG_IDENTIFIER":"cron","MESSAGE":[104,105,255]}';
    expect(readOne(text)).toMatchObject({
      time: '2025-11-21T13:12:01.123456Z',
      level: 'warn',
      service: 'cron',
      message: 'hi\uFFFD',
    });
  });

  it('keeps big integers, __proto__ and fields that collide with metadata', () => {
    const text =
      '{"message":"m","level":"info","n":12345678901234567890,"metadata":{"n":1,"__proto__":2},"__proto__":3}';
    const json = JSON.stringify(readOne(text));
    expect(json).toContain('"n_":12345678901234567890');
    expect(json).toContain('"__proto__":2');
    expect(json).toContain('"__proto___":3');
  });

  it('an object without a message is found by its text; a broken or too deep one is a plain line', () => {
    expect(readOne('{"a":1}').message).toBe('{"a":1}');
    expect(readOne('{"a":1').message).toBe('{"a":1');
    const deep = `{"message":"m","a":${'['.repeat(40)}${']'.repeat(40)}}`;
    expect(readOne(deep).message).toBe(deep);
  });

  it('an overlong message is cut and nothing of the line is lost', () => {
    const text = JSON.stringify({ message: 'ab'.repeat(50_000), key: 'value' });
    expect(
      read(text)
        .map((entry) => entry.message)
        .join(''),
    ).toBe(text);
  });

  it('--service wins and the service of the line is kept in metadata', () => {
    expect(readOne('{"service":"a","msg":"m"}', { service: 'b' })).toMatchObject({
      service: 'b',
      metadata: { service: 'a' },
    });
  });
});

describe('logfmt lines', () => {
  it('maps the usual keys', () => {
    expect(readOne('ts=2026-11-21T13:12:01Z lvl=warning msg="a \\"b\\" c" n=1 empty=')).toMatchObject({
      time: '2026-11-21T13:12:01Z',
      level: 'warn',
      message: 'a "b" c',
      metadata: { lvl: 'warning', n: '1', empty: '' },
    });
  });

  it.each(['a=1', 'x=1 y=2', 'level=info and then words', 'msg=a msg=b'])('%s is a plain line', (text) => {
    expect(readOne(text).message).toBe(text);
  });
});

it('the levels and limits are those of the interface', () => {
  expect(LEVEL_NAMES).toEqual(schema.LEVELS);
  expect(LIMITS).toEqual({
    serviceChars: schema.SERVICE_LENGTH_MAX,
    messageBytes: schema.MESSAGE_BYTES_MAX,
    entryBytes: schema.ENTRY_BYTES_MAX,
    metadataDepth: schema.METADATA_DEPTH_MAX,
    metadataKeys: schema.METADATA_KEYS_MAX,
    correlationChars: schema.CORRELATION_LENGTH_MAX,
  });
});
