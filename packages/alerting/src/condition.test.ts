import type { AlertCondition } from '@logpond/schema/alert-condition';
import { describe, expect, it } from 'vitest';
import type { Entry } from './matcher-fixture.ts';
import { entryOf, isMatch, matchAll, ruleOf } from './matcher-fixture.ts';

const TRACE = '0af76519-16cd-43dd-8448-eb211c80319c';
const LONG = '12345678901234567890123';
type Row = [string, AlertCondition['operator'], AlertCondition['value'], Partial<Entry>[], Partial<Entry>[]];
/** Field, operator, value; entries that match; entries that do not. */
const TABLE: Row[] = [
  ['trace_id', 'contains', 'eQ-', [{ traceId: 'REQ-1' }], [{ traceId: 'RE-Q' }]],
  ['metadata.a', 'equals', '5.0', [{ metadata: '{"a":"5.0"}' }], [{ metadata: '{"a":5}' }]],
  ['level', 'equals', 'error', [{ level: 4 }], [{ level: 3 }, { level: 5 }]],
  ['level', 'not_equals', 'error', [{ level: 3 }], [{ level: 4 }]],
  ['level', 'contains', 'R', [{ level: 3 }, { level: 4 }], [{ level: 2 }]],
  ['level', 'not_contains', 'r', [{ level: 2 }], [{ level: 3 }]],
  ['level', 'starts_with', 'Crit', [{ level: 5 }], [{ level: 4 }]],
  ['level', 'in', ['warn', 'error'], [{ level: 3 }, { level: 4 }], [{ level: 5 }]],
  ['level', 'not_in', ['warn', 'error'], [{ level: 5 }], [{ level: 3 }]],
  ['level', 'exists', undefined, [{ level: 1 }], []],
  ['level', 'gt', 'warn', [{ level: 4 }], [{ level: 3 }]],
  ['level', 'gte', 'warn', [{ level: 3 }], [{ level: 2 }]],
  ['level', 'lt', 'warn', [{ level: 2 }], [{ level: 3 }]],
  ['level', 'lte', 'warn', [{ level: 3 }], [{ level: 4 }]],
  ['level', 'regex', '^(err|crit)', [{ level: 4 }, { level: 5 }], [{ level: 3 }]],
  ['service', 'equals', 'api', [{ service: 'api' }], [{ service: 'API' }, { service: 'api2' }]],
  ['service', 'not_equals', 'api', [{ service: 'API' }], [{ service: 'api' }]],
  ['service', 'contains', 'PI', [{ service: 'api' }], [{ service: 'web' }]],
  ['service', 'starts_with', 'AP', [{ service: 'api' }], [{ service: 'my-api' }]],
  ['service', 'in', ['api', 'web'], [{ service: 'web' }], [{ service: 'db' }]],
  ['service', 'not_in', ['api', 'web'], [{ service: 'db' }], [{ service: 'web' }]],
  ['service', 'exists', undefined, [{}], []],
  ['service', 'gt', 5, [{ service: '6' }, { service: '1e2' }], [{ service: '5' }, { service: 'api' }]],
  ['service', 'regex', 'a.i$', [{ service: 'my-api' }], [{ service: 'apis' }]],
  ['message', 'equals', 'Größe', [{ message: 'Größe' }], [{ message: 'größe' }, { message: 'Größe ' }]],
  ['message', 'equals', '', [{ message: '' }], [{ message: ' ' }]],
  ['message', 'not_equals', 'a', [{ message: 'A' }], [{ message: 'a' }]],
  ['message', 'contains', 'DISK full', [{ message: 'the Disk FULL!' }], [{ message: 'disk  full' }]],
  ['message', 'contains', 'disk', [{ message: 'DIS\u212a' }], [{ message: 'dis c' }]],
  ['message', 'contains', 'ОШИБКА', [{ message: 'вот ошибка' }], [{ message: 'вот' }, { message: '?' }]],
  ['message', 'not_contains', 'disk', [{ message: 'dis' }, { message: '' }], [{ message: 'a DISK' }]],
  ['message', 'starts_with', 'Disk', [{ message: 'dISK full' }], [{ message: ' disk' }]],
  ['message', 'in', ['a', 'b'], [{ message: 'b' }], [{ message: 'ab' }]],
  ['message', 'not_in', ['a', 'b'], [{ message: 'c' }], [{ message: 'b' }]],
  ['message', 'exists', undefined, [{ message: '' }], []],
  [
    'message',
    'gte',
    '1.5',
    [{ message: '1.5' }, { message: '15e-1' }],
    [{ message: '1.4' }, { message: ' 2' }],
  ],
  ['message', 'lt', 0, [{ message: '-1' }], [{ message: '-' }, { message: '' }, { message: '+-1' }]],
  ['message', 'regex', 'time.*out', [{ message: 'a time\nout' }], [{ message: 'a TIMEOUT' }]],
  ['message', 'regex', '(?i)timeout', [{ message: 'a TIMEOUT' }], [{ message: 'time-out' }]],
  [
    'trace_id',
    'equals',
    TRACE.toUpperCase(),
    [{ traceId: TRACE }, { traceId: TRACE.replaceAll('-', '') }],
    [{}],
  ],
  [
    'trace_id',
    'not_equals',
    TRACE,
    [{}, { traceId: 'x' }],
    [{ traceId: TRACE.replaceAll('-', '').toUpperCase() }],
  ],
  ['trace_id', 'in', ['x', TRACE], [{ traceId: 'x' }], [{ traceId: 'X' }, {}]],
  ['trace_id', 'not_in', ['x'], [{}, { traceId: 'y' }], [{ traceId: 'x' }]],
  ['trace_id', 'contains', '0AF7', [{ traceId: TRACE }], [{}]],
  ['trace_id', 'not_contains', '0af7', [{}], [{ traceId: TRACE }]],
  ['trace_id', 'starts_with', 'REQ-', [{ traceId: 'req-1' }], [{ traceId: 'a req-1' }, {}]],
  ['trace_id', 'exists', undefined, [{ traceId: 'x' }], [{}]],
  ['trace_id', 'gt', 5, [{ traceId: '6' }], [{ traceId: '5' }, { traceId: 'x' }, {}]],
  ['trace_id', 'regex', '^req-\\d+$', [{ traceId: 'req-12' }], [{ traceId: 'req-' }, {}]],
  [
    'metadata.a',
    'equals',
    'x',
    [{ metadata: '{"a":"x"}' }],
    [{ metadata: '{"a":"X"}' }, { metadata: '{"b":"x"}' }],
  ],
  [
    'metadata.a',
    'equals',
    5,
    [{ metadata: '{"a":5}' }, { metadata: '{"a":"5"}' }],
    [{ metadata: '{"a":5.5}' }],
  ],
  [
    'metadata.a',
    'equals',
    '1.50',
    [{ metadata: '{"a":1.5}' }, { metadata: '{"a":"1.50"}' }],
    [{ metadata: '{"a":"1.5"}' }],
  ],
  [
    'metadata.a',
    'equals',
    true,
    [{ metadata: '{"a":true}' }, { metadata: '{"a":"true"}' }],
    [{ metadata: '{"a":1}' }],
  ],
  [
    'metadata.a',
    'equals',
    'null',
    [{ metadata: '{"a":null}' }],
    [{ metadata: '{}' }, { metadata: '{"a":""}' }],
  ],
  [
    'metadata.a',
    'equals',
    LONG,
    [{ metadata: `{"a":${LONG}}` }],
    [{ metadata: `{"a":${LONG.replace(/3$/, '4')}}` }],
  ],
  ['metadata.a', 'equals', '["x"]', [], [{ metadata: '{"a":["x"]}' }]],
  [
    'metadata.a.b',
    'equals',
    'x',
    [{ metadata: '{"a":{"b":"x"}}' }, { metadata: '{"a.b":"x"}' }],
    [{ metadata: '{"b":"x"}' }],
  ],
  [
    'metadata.a.b',
    'not_equals',
    'x',
    [{ metadata: '{"a":{"b":"y"}}' }, {}],
    [{ metadata: '{"a":{"b":"y"},"a.b":"x"}' }],
  ],
  [
    'metadata.a',
    'contains',
    'ERR',
    [{ metadata: '{"a":"an error"}' }],
    [{ metadata: '{"a":["error"]}' }, {}],
  ],
  [
    'metadata.a',
    'not_contains',
    'err',
    [{}, { metadata: '{"a":["error"]}' }],
    [{ metadata: '{"a":"ERROR"}' }],
  ],
  [
    'metadata.a',
    'starts_with',
    '5',
    [{ metadata: '{"a":503}' }, { metadata: '{"a":"5x"}' }],
    [{ metadata: '{"a":404}' }],
  ],
  [
    'metadata.a',
    'in',
    [1, 'b', true],
    [{ metadata: '{"a":1}' }, { metadata: '{"a":true}' }],
    [{ metadata: '{"a":false}' }],
  ],
  ['metadata.a', 'not_in', [1, 'b'], [{}, { metadata: '{"a":2}' }], [{ metadata: '{"a":"b"}' }]],
  [
    'metadata.a',
    'exists',
    undefined,
    [{ metadata: '{"a":[]}' }, { metadata: '{"a":0}' }],
    [{ metadata: '{"a":null}' }, {}],
  ],
  [
    'metadata.a',
    'gt',
    5,
    [{ metadata: '{"a":5.1}' }, { metadata: '{"a":"6"}' }, { metadata: `{"a":${LONG}}` }],
    [{ metadata: '{"a":5}' }, { metadata: '{"a":true}' }, {}],
  ],
  [
    'metadata.a',
    'gte',
    '5',
    [{ metadata: '{"a":5}' }],
    [{ metadata: '{"a":"5 "}' }, { metadata: '{"a":null}' }],
  ],
  [
    'metadata.a',
    'lt',
    5,
    [{ metadata: '{"a":-1e300}' }],
    [{ metadata: '{"a":[]}' }, { metadata: '{"a":""}' }],
  ],
  ['metadata.a', 'lte', 5, [{ metadata: '{"a":5}' }], [{ metadata: '{"a":5.000001}' }]],
  [
    'metadata.a',
    'regex',
    '^5\\d\\d$',
    [{ metadata: '{"a":503}' }, { metadata: '{"a":"503"}' }],
    [{ metadata: '{"a":"5030"}' }],
  ],
  ['metadata.__proto__', 'exists', undefined, [{ metadata: '{"__proto__":1}' }], [{}]],
];

describe('a condition', () => {
  it.each(TABLE)('%s %s %j', (field, operator, value, matching, others) => {
    const rule = ruleOf(field, operator, value);
    expect(matching.map((rest) => isMatch(rule, entryOf(rest)))).toEqual(matching.map(() => true));
    expect(others.map((rest) => isMatch(rule, entryOf(rest)))).toEqual(others.map(() => false));
  });

  it('of a rule with a service matches entries of that service only', () => {
    const rules = [
      ruleOf('level', 'gte', 'info'),
      ruleOf('message', 'contains', 'hello'),
      ruleOf('message', 'not_contains', 'x'),
      ruleOf('message', 'equals', 'hello'),
      ruleOf('message', 'regex', 'hello'),
      ruleOf('metadata.a', 'not_equals', 'x'),
      ruleOf('trace_id', 'not_in', ['x']),
    ].map((rule) => ({ ...rule, service: 'web' }));
    expect(matchAll(rules, [entryOf()])).toEqual([]);
    expect(matchAll(rules, [entryOf({ service: 'web' })])).toEqual(rules.map((_, index) => `${index}:0`));
  });
});
