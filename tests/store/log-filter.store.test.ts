import { randomUUID } from 'node:crypto';
import type { LogFilter } from '@logpond/schema/log-query';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { filters, isMatch, sentEntry } from './log-filter-oracle.ts';
import { entryAt, NOW_NS, queryFor, startEngine, storeEntries } from './log-store-fixture.ts';
import type { TestEngine } from './log-store-fixture.ts';

let engine: TestEngine;
beforeAll(async () => {
  engine = await startEngine();
});
afterAll(async () => {
  await engine.stop();
});

const retentionDays = 30;

describe('a filter', () => {
  it('finds what the same filter in plain JavaScript finds, newest first, by arrival within a time', async () => {
    const projectId = randomUUID();
    const sent = fc.sample(sentEntry, { numRuns: 400, seed: 3 });
    await storeEntries(engine.logs, projectId, sent);
    let runsWithHits = 0;
    const run = async (filter: LogFilter, order: 'asc' | 'desc'): Promise<void> => {
      const page = await engine.logs.search(
        { projectId, retentionDays },
        queryFor(filter, { limit: 1000, order }),
      );
      const expected = sent
        .map((entry, index) => ({ entry, index }))
        .filter(({ entry }) => isMatch(entry, filter))
        .toSorted((a, b) => Number(a.entry.timeNs - b.entry.timeNs) || a.index - b.index)
        .map(({ entry }) => [entry.timeNs, entry.message, entry.metadataJson, entry.traceId]);
      const found = page.entries.map((entry) => [
        entry.timeNs,
        entry.message,
        entry.metadataJson,
        entry.traceId,
      ]);
      expect(order === 'asc' ? found : found.toReversed()).toEqual(expected);
      expect(page.total).toBe(expected.length);
      runsWithHits += expected.length > 0 ? 1 : 0;
    };
    await fc.assert(fc.asyncProperty(filters, fc.constantFrom('asc' as const, 'desc' as const), run), {
      numRuns: 250,
    });
    expect(runsWithHits).toBeGreaterThan(50);
  });

  it('takes any text in any place without an error', async () => {
    const projectId = randomUUID();
    await storeEntries(engine.logs, projectId, [entryAt(NOW_NS)]);
    const text = fc.string({ unit: 'binary', minLength: 1, maxLength: 40 });
    const run = async (value: string, mode: 'fulltext' | 'substring'): Promise<void> => {
      const filter = {
        services: [value],
        text: { mode, query: value },
        notTexts: [value],
        traceId: value,
        metadata: [{ path: value, values: [value] }],
      };
      expect((await engine.logs.search({ projectId, retentionDays }, queryFor(filter))).total).toBe(0);
    };
    await fc.assert(fc.asyncProperty(text, fc.constantFrom('fulltext' as const, 'substring' as const), run), {
      numRuns: 60,
    });
  });

  it('finds any service, trace and metadata value by itself, whatever its characters', async () => {
    const projectId = randomUUID();
    const text = fc.string({ unit: 'grapheme-composite', minLength: 1, maxLength: 30 });
    const odd = ["'", '\\', '\\n', '\t', '\n', '\0', '{p0:String}', "']", '\u{10ffff}', '%', '"', ','];
    const values = [...new Set([...odd, ...fc.sample(text, { numRuns: 30, seed: 5 })])];
    const sent = values.map((value) =>
      entryAt(NOW_NS, {
        service: value,
        traceId: value,
        metadataJson: JSON.stringify({ k: value, [value]: 1 }),
      }),
    );
    await storeEntries(engine.logs, projectId, sent);
    for (const value of values) {
      for (const filter of [
        { services: [value] },
        { traceId: value },
        { metadata: [{ path: 'k', values: [value] }] },
        { metadata: [{ path: value, values: ['1'] }] },
      ]) {
        const { entries } = await engine.logs.search({ projectId, retentionDays }, queryFor(filter));
        expect({ filter, found: entries.map(({ service }) => service) }).toEqual({ filter, found: [value] });
      }
    }
  });
});

describe('a long query', () => {
  it('with hundreds of values is answered like a short one', async () => {
    const projectId = randomUUID();
    await storeEntries(engine.logs, projectId, [entryAt(NOW_NS, { metadataJson: '{"k0":"ä"}' })]);
    const values = Array.from({ length: 99 }, (_, index) => `${index}'\\\n`.padEnd(100, 'ß'));
    const filter = {
      services: [...values, 'api'],
      notServices: values,
      metadata: [{ path: 'k0', values: [...values, 'ä'] }],
    };
    expect((await engine.logs.search({ projectId, retentionDays }, queryFor(filter))).total).toBe(1);
  });
});
