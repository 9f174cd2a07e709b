import { randomUUID } from 'node:crypto';
import { BlockColumns } from '@logpond/alert-worker/block-columns';
import { ProjectMatcher } from '@logpond/alerting/matcher';
import type { MatchableRule } from '@logpond/alerting/matcher';
import { matchRule } from '@logpond/db/alert-sql';
import { SqlBindings } from '@logpond/db/sql-bindings';
import { decodeBlock } from '@logpond/log-block/decode';
import { BlockEncoder } from '@logpond/log-block/encode';
import { ALERT_OPERATORS } from '@logpond/schema/alert-condition';
import type { AlertCondition } from '@logpond/schema/alert-condition';
import type { CheckedEntry } from '@logpond/schema/log-entry';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { entries, NUMBERS, rules as ruleArbitrary, TRACES } from './alert-rule-arbitrary.ts';
import { entryAt, NOW_MS, NOW_NS, startEngine, storeEntries } from './log-store-fixture.ts';
import type { TestEngine } from './log-store-fixture.ts';

let engine: TestEngine;
beforeAll(async () => {
  engine = await startEngine();
});
afterAll(async () => {
  await engine.stop();
});

/** Conditions of one query; more make it too long for the engine's parser. */
const CONDITIONS_A_QUERY = 10;

function matchByMatcher(entries: readonly CheckedEntry[], rules: readonly MatchableRule[]): number[][] {
  const encoder = new BlockEncoder();
  encoder.beginRun(randomUUID(), NOW_MS);
  for (const entry of entries) encoder.appendEntry(entry);
  encoder.endRun(100);
  const columns = new BlockColumns(decodeBlock(encoder.finish(NOW_MS).block));
  const found: number[][] = rules.map(() => []);
  new ProjectMatcher(rules).matchAllRows(columns, 0, entries.length, (rule, row) => found[rule]?.push(row));
  return found.map((rows) => rows.toSorted((a, b) => a - b));
}

/** Entries lie one nanosecond apart, so that the time tells which it is. */
async function matchBySql(projectId: string, rules: readonly MatchableRule[]): Promise<number[][]> {
  const found: number[][] = [];
  for (let from = 0; from < rules.length; from += CONDITIONS_A_QUERY) {
    const bindings = new SqlBindings();
    const project = bindings.bind('UUID', projectId);
    const columns = rules
      .slice(from, from + CONDITIONS_A_QUERY)
      .map((rule) => `groupArrayIf(toString(toUnixTimestamp64Nano(time)), ${matchRule(bindings, rule)})`);
    const sql = `SELECT [${columns.join(', ')}] AS found FROM logs WHERE project_id = ${project}`;
    const [row] = await engine.store.readInternal<{ found: string[][] }>(sql, bindings.params);
    const rows = row?.found.map((times) => times.map((time) => Number(BigInt(time) - NOW_NS)));
    found.push(...(rows ?? []).map((list) => list.toSorted((a, b) => a - b)));
  }
  return found;
}

async function store(entries: readonly CheckedEntry[]): Promise<{ projectId: string; sent: CheckedEntry[] }> {
  const projectId = randomUUID();
  const sent = entries.map((entry, row) => ({ ...entry, timeNs: NOW_NS + BigInt(row) }));
  await storeEntries(engine.logs, projectId, sent);
  return { projectId, sent };
}

function ruleOf(
  field: string,
  operator: AlertCondition['operator'],
  value?: AlertCondition['value'],
): MatchableRule {
  return { id: 'rule', condition: { field, operator, value, threshold: 1, timeWindow: '1m' } };
}

const SEED = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 31));

describe('matchRule', () => {
  it('matches in ClickHouse exactly the entries that the matcher matches', async () => {
    const { projectId, sent } = await store(fc.sample(entries, { numRuns: 300, seed: SEED }));
    const rules = fc.sample(ruleArbitrary, { numRuns: 500, seed: SEED });
    const bySql = await matchBySql(projectId, rules);
    const byMatcher = matchByMatcher(sent, rules);
    const differences = rules.flatMap(({ condition, service }, index) => {
      const odd = (byMatcher[index] ?? [])
        .filter((row) => bySql[index]?.includes(row) !== true)
        .concat((bySql[index] ?? []).filter((row) => byMatcher[index]?.includes(row) !== true));
      return odd.length === 0
        ? []
        : [
            {
              condition,
              service,
              of: odd
                .slice(0, 3)
                .map((row) => ({ inSql: bySql[index]?.includes(row), ...sent[row], timeNs: row })),
            },
          ];
    });
    expect({ SEED, differences: differences.slice(0, 5) }).toEqual({ SEED, differences: [] });
    const isTelling = byMatcher.filter(({ length }) => length > 0 && length < sent.length).length;
    expect(isTelling).toBeGreaterThan(200);
  });

  it('compares numbers in all spellings, in texts and in metadata, to the last digit', async () => {
    const doubles = fc.sample(fc.double({ noNaN: true, noDefaultInfinity: true }), {
      numRuns: 25,
      seed: SEED,
    });
    const numbers = [...NUMBERS, ...doubles.map(String)];
    const { projectId, sent } = await store(
      numbers.flatMap((number) => [
        entryAt(NOW_NS, { metadataJson: `{"a":${number}}` }),
        entryAt(NOW_NS, { metadataJson: `{"a":"${number}"}` }),
        entryAt(NOW_NS, { message: number }),
      ]),
    );
    const rules = numbers.flatMap((number) => {
      const bounds = Number.isFinite(Number(number))
        ? [
            ruleOf('metadata.a', 'gt', number),
            ruleOf('metadata.a', 'lte', number),
            ruleOf('message', 'gte', number),
          ]
        : [];
      return [ruleOf('metadata.a', 'equals', number), ruleOf('metadata.a', 'contains', number), ...bounds];
    });
    const bySql = await matchBySql(projectId, rules);
    const tell = (rows: readonly number[] | undefined): unknown[] =>
      (rows ?? []).map((row) => [sent[row]?.metadataJson, sent[row]?.message]);
    for (const [index, rows] of matchByMatcher(sent, rules).entries()) {
      const { condition } = rules[index] ?? {};
      expect({ SEED, condition, found: tell(bySql[index]) }).toEqual({ SEED, condition, found: tell(rows) });
    }
  });

  it('knows null, true and false by name, and tells null from what is absent', async () => {
    const values = ['null', 'true', 'false', '"null"', '"true"', '"false"', '0', '""', '[]', '{}'];
    const metadata = ['{}', '{"b":null}', ...values.map((value) => `{"a":${value}}`)];
    const { projectId, sent } = await store(
      metadata.map((metadataJson) => entryAt(NOW_NS, { metadataJson })),
    );
    const operators = ['equals', 'not_equals', 'contains', 'not_contains'] as const;
    const rules = operators.flatMap((operator) =>
      ['null', 'true', 'false', ''].map((name) => ruleOf('metadata.a', operator, name)),
    );
    const found = await matchBySql(projectId, [...rules, ruleOf('metadata.a', 'exists')]);
    expect(found).toEqual(matchByMatcher(sent, [...rules, ruleOf('metadata.a', 'exists')]));
    expect([found[0], found[1], found.at(-1)]).toEqual([
      [2, 5],
      [3, 6],
      [3, 4, 5, 6, 7, 8, 9, 10, 11],
    ]);
  });

  it.each(ALERT_OPERATORS)('knows %s on every field', async (operator) => {
    const traces = TRACES.map((traceId) => entryAt(NOW_NS, { traceId }));
    const values = [
      '"disk"',
      '"DISK"',
      '5',
      '6',
      '4.5',
      '"5"',
      'true',
      'null',
      '[]',
      '12345678901234567890123',
    ];
    const metadata = values.map((value) => entryAt(NOW_NS, { metadataJson: `{"a":${value}}` }));
    const texts = ['disk', 'DISK', 'a disk', '4', '5', '6', ''].map((message) =>
      entryAt(NOW_NS, { message }),
    );
    const services = ['disk', 'DISK', '4', '5', '6'].map((service) => entryAt(NOW_NS, { service }));
    const levels = [1, 2, 3, 4, 5].map((level) => entryAt(NOW_NS, { level }));
    const { projectId, sent } = await store([...traces, ...metadata, ...texts, ...services, ...levels]);
    const fields = ['level', 'service', 'message', 'trace_id', 'metadata.a'];
    const rules = fields.map((name) => {
      const one = name === 'level' ? 'warn' : name === 'trace_id' ? '12' : 'disk';
      if (operator === 'exists') return ruleOf(name, operator);
      if (operator === 'in' || operator === 'not_in') return ruleOf(name, operator, [one]);
      const isNumeric = ['gt', 'gte', 'lt', 'lte'].includes(operator) && name !== 'level';
      return ruleOf(name, operator, isNumeric ? 5 : one);
    });
    const byMatcher = matchByMatcher(sent, rules);
    expect(await matchBySql(projectId, rules)).toEqual(byMatcher);
    expect(byMatcher.every(({ length }) => length > 0)).toBe(true);
  });
});
