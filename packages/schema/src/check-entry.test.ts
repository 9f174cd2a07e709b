import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkLogEntry, isRefusal } from './check-entry.ts';
import { parseExactJson } from './exact-json.ts';
import type { CheckedEntry, EntryRefusal } from './log-entry.ts';
import { logEntrySchema } from './log-entry.ts';
import { parseTimestampNs, TIMESTAMP_MAX_NS } from './timestamp.ts';

const NOW_MS = Date.UTC(2026, 0, 31, 12);
const ANY_TIME = { nowMs: NOW_MS, minTimeNs: 0n, maxTimeNs: TIMESTAMP_MAX_NS };
const VALID = { time: '2026-01-31T11:59:59.5Z', service: 'api', level: 'info', message: 'hello' };

function check(value: unknown, context = ANY_TIME): CheckedEntry | EntryRefusal {
  return checkLogEntry(value, context);
}

function accept(value: unknown): CheckedEntry {
  const outcome = check(value);
  if (isRefusal(outcome)) throw new Error(`refused: ${outcome.path}: ${outcome.message}`);
  return outcome;
}

function refuse(value: unknown): EntryRefusal {
  const outcome = check(value);
  if (!isRefusal(outcome)) throw new Error('accepted');
  return outcome;
}

function acceptText(json: string): CheckedEntry {
  const outcome = checkLogEntry(parseExactJson(json), { ...ANY_TIME, hasRawNumbers: true });
  if (isRefusal(outcome)) throw new Error(`refused: ${outcome.message}`);
  return outcome;
}

function nest(depth: number): object {
  let value: object = {};
  for (let level = 1; level < depth; level += 1) value = level % 2 === 0 ? { a: value } : [value];
  return { a: value };
}

describe('checkLogEntry accepts', () => {
  it('an entry without time at the time of the server', () => {
    expect(accept({ ...VALID, time: undefined }).timeNs).toBe(BigInt(NOW_MS) * 1_000_000n);
    expect(accept({ ...VALID, time: null }).timeNs).toBe(BigInt(NOW_MS) * 1_000_000n);
  });

  it('timestamp as an alias of time, and as metadata beside it', () => {
    const timestamp = '2026-01-31T10:00:00Z';
    const aliased = accept({ ...VALID, time: undefined, timestamp });
    expect(aliased).toMatchObject({ timeNs: parseTimestampNs(timestamp), metadataJson: '{}' });
    expect(accept({ ...VALID, timestamp }).metadataJson).toBe(JSON.stringify({ timestamp }));
  });

  it('levels in any letter case as their wire number', () => {
    const levels = ['debug', 'Info', 'WARN', 'eRRor', 'CRITICAL'];
    expect(levels.map((level) => accept({ ...VALID, level }).level)).toEqual([1, 2, 3, 4, 5]);
  });

  it('null, [] and nothing as {}', () => {
    for (const metadata of [null, [], undefined, {}])
      expect(accept({ ...VALID, metadata }).metadataJson).toBe('{}');
  });

  it('null and "" as an absent trace, span and session', () => {
    const entry = accept({ ...VALID, trace_id: null, span_id: '', session_id: null });
    expect([entry.traceId, entry.spanId, entry.sessionId]).toEqual([undefined, undefined, undefined]);
  });

  it('100 code points of service, 65,536 bytes of message, the empty message', () => {
    expect(accept({ ...VALID, service: '😀'.repeat(100) }).service).toBe('😀'.repeat(100));
    expect(accept({ ...VALID, message: 'é'.repeat(32_768) }).message).toHaveLength(32_768);
    expect(accept({ ...VALID, message: '' }).message).toBe('');
  });

  it('unknown top-level keys into metadata, never over a key that is there', () => {
    const metadata = { host: 'a' };
    const entry = accept({ ...VALID, metadata, host: 'b', id: 7, extra: null });
    expect(entry.metadataJson).toBe('{"host":"a","id":7,"extra":null}');
    expect(metadata).toEqual({ host: 'a' });
  });

  it('__proto__, constructor and toString as data at the top and inside', () => {
    const text = '{"__proto__":{"__proto__":1},"constructor":{"prototype":2},"toString":3}';
    expect(acceptText(`{"service":"a","level":"info","message":"","metadata":${text}}`).metadataJson).toBe(
      text,
    );
    const folded = `{"service":"a","level":"info","message":"",${text.slice(1)}`;
    expect(acceptText(folded).metadataJson).toBe(text);
    expect(Object.hasOwn(Object.prototype, 'prototype')).toBe(false);
  });

  it('numbers beyond a double exactly, folded ones too', () => {
    const text = '{"service":"a","level":"info","message":"","metadata":{"a":[9007199254740993]},"b":1e400}';
    expect(acceptText(text).metadataJson).toBe('{"a":[9007199254740993],"b":1e400}');
  });

  it('lone surrogates as U+FFFD and every other character as it is', () => {
    const entry = accept({
      ...VALID,
      service: '\ud800',
      message: 'a\udc00b\0c',
      trace_id: '\udbff',
      metadata: { '\ud800': 1, k: '\ud800\\ud800 😀\0' },
    });
    expect(entry).toMatchObject({ service: '\ufffd', message: 'a\ufffdb\0c', traceId: '\ufffd' });
    expect(JSON.parse(entry.metadataJson)).toEqual({ '\ufffd': 1, k: '\ufffd\\ud800 😀\0' });
  });

  it('of two keys that become equal the last', () => {
    expect(accept({ ...VALID, metadata: { '\ud800': 1, '\ud801': 2 } }).metadataJson).toBe('{"\ufffd":2}');
  });

  it('metadata 32 levels deep with 256 keys', () => {
    expect(accept({ ...VALID, metadata: nest(31) }).metadataJson).toContain('[{"a":');
    const keys = Object.fromEntries(Array.from({ length: 256 }, (_, index) => [`k${index}`, index]));
    expect(accept({ ...VALID, metadata: keys }).metadataJson).toBe(JSON.stringify(keys));
  });
});

describe('checkLogEntry refuses', () => {
  it.each<[string, unknown, string, string]>([
    ['a text', 'x', '', 'expected a log entry object, got "x"'],
    ['an array', [1], '', 'expected a log entry object, got an array of 1'],
    ['null', null, '', 'expected a log entry object, got null'],
    ['a numeric time', { ...VALID, time: 5 }, 'time', 'expected an RFC 3339 timestamp such as'],
    ['a leap second', { ...VALID, time: '2016-12-31T23:59:60Z' }, 'time', 'got "2016-12-31T23:59:60Z"'],
    ['a bad alias', { ...VALID, time: null, timestamp: 'x' }, 'timestamp', 'got "x"'],
    [
      'no service',
      { ...VALID, service: undefined },
      'service',
      'expected a text of 1 to 100 characters, got nothing',
    ],
    ['an empty service', { ...VALID, service: '' }, 'service', 'got ""'],
    [
      '101 code points',
      { ...VALID, service: '😀'.repeat(101) },
      'service',
      'expected a text of 1 to 100 characters',
    ],
    [
      'an unknown level',
      { ...VALID, level: 'fatal' },
      'level',
      'one of debug, info, warn, error, critical, got "fatal"',
    ],
    ['a numeric level', { ...VALID, level: 3 }, 'level', 'got 3'],
    ['no message', { ...VALID, message: null }, 'message', 'expected a text, got null'],
    [
      'a long message',
      { ...VALID, message: 'é'.repeat(32_769) },
      'message',
      'at most 65536 bytes of UTF-8, got 65538',
    ],
    ['metadata text', { ...VALID, metadata: 'x' }, 'metadata', 'expected an object, got "x"'],
    ['a metadata array', { ...VALID, metadata: [1] }, 'metadata', 'expected an object, got an array of 1'],
    ['depth 33', { ...VALID, metadata: nest(32) }, 'metadata', 'expected at most 32 nested levels'],
    ['folded depth 33', { ...VALID, x: nest(31) }, 'metadata', 'expected at most 32 nested levels'],
    ['a long trace', { ...VALID, trace_id: 'x'.repeat(129) }, 'trace_id', 'at most 128 characters'],
    ['a numeric span', { ...VALID, span_id: 5 }, 'span_id', 'got 5'],
    ['a session object', { ...VALID, session_id: {} }, 'session_id', 'got an object'],
    ['262,145 bytes', { ...VALID, metadata: { a: 'x'.repeat(262_144) } }, '', 'at most 262144 bytes of JSON'],
  ])('%s', (_, value, path, sentence) => {
    const refusal = refuse(value);
    expect(refusal.path).toBe(path);
    expect(refusal.message).toContain(sentence);
    expect(refusal.message.length).toBeLessThan(220);
  });

  it('257 keys, folded ones and all levels together', () => {
    const keys = Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`k${index}`, index]));
    expect(refuse({ ...VALID, metadata: { keys }, ...keys }).message).toContain('at most 256 keys');
  });

  it('a number beyond a double where a text is expected, and names it', () => {
    const value = parseExactJson('{"service":12345678901234567890,"level":"info","message":""}');
    expect(refuse(value).path).toBe('service');
    expect(refuse(value).message).toContain('got 12345678901234567890');
  });

  it('times outside the window and accepts its ends', () => {
    const context = {
      ...ANY_TIME,
      minTimeNs: 1_000_000_000_000_000_000n,
      maxTimeNs: 1_000_000_001_000_000_000n,
    };
    expect(check({ ...VALID, time: '2001-09-09T01:46:40Z' }, context)).not.toHaveProperty('code');
    expect(check({ ...VALID, time: '2001-09-09T01:46:41Z' }, context)).not.toHaveProperty('code');
    expect(check({ ...VALID, time: '2001-09-09T01:46:41.000000001Z' }, context)).toMatchObject({
      path: 'time',
    });
    expect(check({ ...VALID, time: '2001-09-09T01:46:39.999Z' }, context)).toMatchObject({ path: 'time' });
  });
});

describe('checkLogEntry', () => {
  const text = fc.oneof(
    fc.constantFrom('api', 'ERROR', 'warn', '', 'x'.repeat(129), '😀'.repeat(101)),
    fc.string(),
  );
  const time = fc.oneof(
    fc.constantFrom('2026-01-31T11:59:59Z', '2026-02-30T00:00:00Z', '1969-01-01T00:00:00Z'),
    text,
  );
  const odd = fc.constantFrom(null, undefined, 5, true, [], [1], {}, { a: [{ b: 1 }] });
  const mostly = (usual: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
    fc.oneof({ weight: 6, arbitrary: usual }, { weight: 1, arbitrary: odd });
  const entry = fc.record(
    {
      time: mostly(time),
      service: mostly(fc.oneof(fc.constant('api'), text)),
      level: mostly(fc.oneof(fc.constantFrom('info', 'Error'), text)),
      message: mostly(fc.string({ unit: 'binary' })),
      metadata: mostly(fc.object({ maxDepth: 4 })),
      trace_id: mostly(fc.oneof(fc.uuid(), text)),
      span_id: mostly(text),
      session_id: mostly(text),
      extra: odd,
    },
    { requiredKeys: ['service', 'level', 'message'] },
  );

  it('accepts and refuses what logEntrySchema does, at the same path', () => {
    fc.assert(
      fc.property(fc.oneof({ weight: 20, arbitrary: entry }, { weight: 1, arbitrary: odd }), (value) => {
        const outcome = check(value);
        const oracle = logEntrySchema.safeParse(value);
        const expected = oracle.success ? undefined : (oracle.error.issues[0]?.path[0] ?? '');
        expect(isRefusal(outcome) ? outcome.path : undefined).toBe(expected);
      }),
      { numRuns: 3000 },
    );
  });

  it('keeps every JSON metadata as the same value', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 }), { maxKeys: 5 }), (metadata) => {
        const sent: unknown = JSON.parse(JSON.stringify({ ...VALID, metadata }));
        const { metadataJson } = accept(sent);
        expect(JSON.parse(metadataJson)).toEqual(JSON.parse(JSON.stringify(metadata)));
      }),
    );
  });
});
