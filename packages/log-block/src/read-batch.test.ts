import { gunzipSync, gzipSync } from 'node:zlib';
import { ApiError } from '@logpond/schema/api-error';
import { describe, expect, it } from 'vitest';
import type { BlockEntry } from './decode.ts';
import { decodeBlock } from './decode.ts';
import { BlockEncoder } from './encode.ts';
import type { BatchOptions } from './read-batch.ts';
import { readBatch } from './read-batch.ts';

const NOW_MS = Date.UTC(2026, 0, 31, 12);
const DAY_MS = 86_400_000;
const OPTIONS: BatchOptions = {
  format: 'json',
  projectId: '01890000-aaaa-7bbb-8ccc-0123456789ab',
  nowMs: NOW_MS,
  retentionMs: 30 * DAY_MS,
  batchMax: 1000,
  strict: false,
};
const NDJSON: BatchOptions = { ...OPTIONS, format: 'ndjson' };
const ENTRY = { time: '2026-01-31T11:00:00Z', service: 'api', level: 'info', message: 'hello' };
const BAD = { ...ENTRY, level: 'fatal' };

function toBody(value: unknown): Buffer {
  return Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));
}

function entriesOf(encoder: BlockEncoder): BlockEntry[] {
  return [...decodeBlock(encoder.finish(NOW_MS).block).entries()];
}

function read(value: unknown, options = OPTIONS): BlockEntry[] {
  const encoder = new BlockEncoder();
  readBatch(toBody(value), options, encoder);
  return entriesOf(encoder);
}

function refusalOf(value: unknown, options = OPTIONS): ApiError {
  const encoder = new BlockEncoder();
  readBatch(toBody([ENTRY]), OPTIONS, encoder);
  let thrown: unknown;
  try {
    readBatch(toBody(value), options, encoder);
  } catch (error) {
    thrown = error;
  }
  if (!(thrown instanceof ApiError)) throw new Error('expected a refusal', { cause: thrown });
  // The promise of every refusal: the encoder is as before the call.
  expect([encoder.rows, encoder.runs]).toEqual([1, 1]);
  expect(entriesOf(encoder)).toHaveLength(1);
  return thrown;
}

describe('readBatch', () => {
  it.each<[string, unknown, BatchOptions]>([
    ['an object with logs', { logs: [ENTRY, ENTRY] }, OPTIONS],
    ['a bare array', [ENTRY, ENTRY], OPTIONS],
    ['a byte order mark', `\ufeff${JSON.stringify([ENTRY, ENTRY])}`, OPTIONS],
    ['lines', `${JSON.stringify(ENTRY)}\n${JSON.stringify(ENTRY)}`, NDJSON],
    [
      'lines with empty ones and CRLF',
      `\ufeff\r\n${JSON.stringify(ENTRY)}\r\n \n${JSON.stringify(ENTRY)}\r\n`,
      NDJSON,
    ],
  ])('takes %s', (_, body, options) => {
    expect(read(body, options)).toHaveLength(2);
  });

  it('keeps the good entries in order and names the first 20 bad ones', () => {
    const encoder = new BlockEncoder();
    const logs = Array.from({ length: 50 }, (_, index) =>
      index % 2 === 0 ? { ...ENTRY, message: `${index}` } : BAD,
    );
    const outcome = readBatch(toBody({ logs }), OPTIONS, encoder);
    expect(outcome).toMatchObject({ accepted: 25, rejectedCount: 25 });
    expect(outcome.rejected).toHaveLength(20);
    expect(outcome.rejected[1]).toEqual({
      index: 3,
      code: 'VALIDATION_ERROR',
      path: 'level',
      message: 'level: expected one of debug, info, warn, error, critical, got "fatal"',
    });
    const messages = entriesOf(encoder).map(({ message }) => message);
    expect(messages).toEqual(Array.from({ length: 25 }, (_, index) => `${index * 2}`));
  });

  it('refuses a line that is not JSON alone', () => {
    const encoder = new BlockEncoder();
    const body = `${JSON.stringify(ENTRY)}\n{"service":"a\n${JSON.stringify(ENTRY)}\n[1]\n`;
    const outcome = readBatch(toBody(body), NDJSON, encoder);
    expect(outcome.rejected.map(({ index, code }) => [index, code])).toEqual([
      [1, 'INVALID_JSON'],
      [3, 'VALIDATION_ERROR'],
    ]);
    expect(entriesOf(encoder)).toHaveLength(2);
  });

  it('keeps numbers that a double cannot hold, in one object and in lines', () => {
    const text =
      '{"service":"a","level":"info","message":"","metadata":{"n":[12345678901234567890,1.0,1e400]}}';
    for (const entry of [...read(`[${text}]`), ...read(text, NDJSON)]) {
      expect(entry.metadataJson).toMatch(/^\{"n":\[12345678901234567890,1,1e400\]\}$/);
    }
  });

  it('turns invalid UTF-8 and lone surrogates into U+FFFD', () => {
    const [before, after] = ['{"service":"a","level":"info","message":"', '","metadata":{"k":"\\ud800"}}'];
    const encoder = new BlockEncoder();
    readBatch(Buffer.concat([toBody(before), Buffer.from([0xff, 0x41]), toBody(after)]), NDJSON, encoder);
    expect(entriesOf(encoder)[0]).toMatchObject({ message: '\ufffdA', metadataJson: '{"k":"\ufffd"}' });
  });

  it('accepts exactly the times from now - retention to now + 10 min', () => {
    const at = (ms: number): object => ({ ...ENTRY, time: new Date(ms).toISOString() });
    const [oldest, newest] = [NOW_MS - 30 * DAY_MS, NOW_MS + 600_000];
    const outcome = readBatch(
      toBody([at(oldest - 1), at(oldest), at(newest), at(newest + 1)]),
      OPTIONS,
      new BlockEncoder(),
    );
    expect(outcome.rejected.map(({ index, path }) => [index, path])).toEqual([
      [0, 'time'],
      [3, 'time'],
    ]);
  });

  it('accounts the bytes of the body to its run', () => {
    const encoder = new BlockEncoder();
    const body = toBody([ENTRY]);
    readBatch(body, OPTIONS, encoder);
    expect(encoder.finish(NOW_MS).runs).toMatchObject([
      { projectId: OPTIONS.projectId, rows: 1, bodyBytes: body.length },
    ]);
  });

  it.each<[string, unknown, BatchOptions, string, string]>([
    ['text', 'hello', OPTIONS, 'INVALID_JSON', 'expected JSON'],
    ['nothing', '', OPTIONS, 'INVALID_JSON', 'expected JSON'],
    ['a cut body', '{"logs":[', OPTIONS, 'INVALID_JSON', 'expected JSON'],
    ['a number', '5', OPTIONS, 'VALIDATION_ERROR', 'or an array of log entries, got 5'],
    ['null', 'null', OPTIONS, 'VALIDATION_ERROR', 'got null'],
    ['no logs', {}, OPTIONS, 'VALIDATION_ERROR', 'got nothing'],
    ['logs that are an object', { logs: {} }, OPTIONS, 'VALIDATION_ERROR', 'got an object'],
    ['an empty batch', { logs: [] }, OPTIONS, 'VALIDATION_ERROR', 'at least one log entry'],
    ['only empty lines', '\n \n', NDJSON, 'VALIDATION_ERROR', 'at least one log entry'],
    [
      '1001 entries',
      Array.from({ length: 1001 }, () => ENTRY),
      OPTIONS,
      'BATCH_TOO_LARGE',
      'at most 1000 log entries in a batch, got 1001',
    ],
    ['1001 lines', '{}\n'.repeat(1001), NDJSON, 'BATCH_TOO_LARGE', 'got 1001'],
    [
      'a body that nests too deep',
      '['.repeat(100_000),
      OPTIONS,
      'VALIDATION_ERROR',
      'at most 40 nested levels',
    ],
    ['only bad entries', [BAD, BAD], OPTIONS, 'VALIDATION_ERROR', '2 of 2 log entries refused'],
    [
      'one bad entry, strictly',
      [ENTRY, BAD],
      { ...OPTIONS, strict: true },
      'VALIDATION_ERROR',
      '1 of 2 log entries refused, nothing stored; entry 1: level: expected',
    ],
  ])('refuses %s and stores nothing of it', (_, body, options, code, sentence) => {
    const error = refusalOf(body, options);
    expect(error.code).toBe(code);
    expect(error.publicMessage).toContain(sentence);
  });

  it('names index, path and problem of each entry when all are refused', () => {
    expect(refusalOf([BAD, { ...ENTRY, service: '' }, 7]).details).toEqual([
      { index: 0, path: 'level', message: 'expected one of debug, info, warn, error, critical, got "fatal"' },
      { index: 1, path: 'service', message: 'expected a text of 1 to 100 characters, got ""' },
      { index: 2, path: '', message: 'expected a log entry object, got 7' },
    ]);
  });

  it('refuses an entry at depth 33 and keeps its neighbours', () => {
    const deep = { ...ENTRY, metadata: JSON.parse(`${'{"a":'.repeat(33)}1${'}'.repeat(33)}`) as unknown };
    const encoder = new BlockEncoder();
    expect(readBatch(toBody([ENTRY, deep, ENTRY]), OPTIONS, encoder).rejected).toMatchObject([
      { index: 1, path: 'metadata' },
    ]);
    expect(entriesOf(encoder)).toHaveLength(2);
  });

  it('survives a bomb of keys', () => {
    const metadata = Object.fromEntries(Array.from({ length: 500_000 }, (_, index) => [`k${index}`, 1]));
    const body = gunzipSync(gzipSync(toBody([{ ...ENTRY, metadata }])));
    expect(() => readBatch(body, OPTIONS, new BlockEncoder())).toThrow(ApiError);
  });
});
