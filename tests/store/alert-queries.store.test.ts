import { randomUUID } from 'node:crypto';
import type { MatchableRule } from '@logpond/alerting/matcher';
import { readWindowSpec, replayWindow } from '@logpond/alerting/window';
import type { CountItem } from '@logpond/alerting/window';
import { AlertQueries } from '@logpond/db/alert-queries';
import { decodeBlock } from '@logpond/log-block/decode';
import { BlockEncoder } from '@logpond/log-block/encode';
import { decodeEntryId } from '@logpond/log-block/entry-id';
import { encodeNativePlan } from '@logpond/log-block/native';
import type { AlertCondition } from '@logpond/schema/alert-condition';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { entryAt, NOW_MS, NOW_NS, startEngine } from './log-store-fixture.ts';
import type { TestEngine } from './log-store-fixture.ts';

const NOW_S = NOW_MS / 1000;
const SEED = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 31));

let engine: TestEngine;
let queries: AlertQueries;
beforeAll(async () => {
  engine = await startEngine();
  queries = new AlertQueries(engine.store);
});
afterAll(async () => {
  await engine.stop();
});

type Sent = { receivedMs: number; timeMs: number; message: string };

/** Stores entries, each a run of its own that was received when it says. */
async function store(projectId: string, sent: readonly Sent[]): Promise<void> {
  const encoder = new BlockEncoder();
  for (const { receivedMs, timeMs, message } of sent) {
    encoder.beginRun(projectId, receivedMs);
    encoder.appendEntry(entryAt(BigInt(timeMs) * 1_000_000n, { message }));
    encoder.endRun(10);
  }
  const block = decodeBlock(encoder.finish(NOW_MS).block);
  const target = { epoch: 1, shard: 3, retentionClassOf: () => 30 };
  const { chunks, rows } = encodeNativePlan([{ block, firstOffset: 1 }], target);
  await engine.logs.insertPlan(chunks, randomUUID(), rows);
}

function ruleOf(timeWindow: string, threshold = 5): MatchableRule & { condition: AlertCondition } {
  return {
    id: 'rule',
    condition: { field: 'message', operator: 'contains', value: 'disk', threshold, timeWindow },
  };
}

const scopeOf = (projectId: string): { projectId: string; oldestNs: bigint } => ({ projectId, oldestNs: 0n });
const floorS = (ms: number): number => Math.floor(ms / 1000);

describe('countBuckets', () => {
  it.each(['1s', '90s', '20m', '1d'])(
    'gives a window of %s the same firings as each entry alone, in the order of reception',
    async (timeWindow) => {
      const projectId = randomUUID();
      const rule = ruleOf(timeWindow);
      const spec = readWindowSpec(rule.condition);
      const reachMs = spec.bucketS * (spec.span + 3) * 1000;
      const ageMs = fc.oneof(
        fc.integer({ min: -62_000, max: 5000 }),
        fc.integer({ min: 0, max: reachMs }),
        fc.constantFrom(-61_000, -60_000, -60_999, 0, reachMs),
      );
      const item = fc.record({
        receivedMs: fc.integer({ min: 0, max: 6 * reachMs }).map((ms) => NOW_MS - ms),
        ageMs,
        message: fc.constantFrom('disk', 'Disk', 'tape'),
      });
      const sent = fc
        .sample(item, { numRuns: 900, seed: SEED })
        .map((one): Sent => ({ ...one, timeMs: one.receivedMs - one.ageMs }))
        .toSorted((a, b) => a.receivedMs - b.receivedMs);
      await store(projectId, sent);
      const range = { fromS: floorS(NOW_MS - 6 * reachMs), toS: NOW_S + 1, bucketS: spec.bucketS };
      const counts = await queries.countBuckets(scopeOf(projectId), rule, range);
      const singly = sent
        .filter(({ message }) => message !== 'tape')
        .map(({ receivedMs, timeMs }): CountItem => ({
          second: floorS(timeMs),
          receivedSecond: floorS(receivedMs),
          count: 1,
        }));
      // Low enough to be reached, high enough to be left again.
      const threshold = Math.ceil(replayWindow(spec, singly, { untilS: NOW_S }).maxCount * 0.7);
      const expected = replayWindow({ ...spec, threshold }, singly, { untilS: NOW_S });
      const replayed = replayWindow({ ...spec, threshold }, counts, { untilS: NOW_S });
      expect({ SEED, ...replayed }).toEqual({ SEED, ...expected });
      expect(expected.firings.length).toBeGreaterThan(0);
      const orders = counts.map(({ receivedSecond }) => receivedSecond);
      expect(orders).toEqual(orders.toSorted((a, b) => a - b));
    },
  );

  it('counts what was received in the range only, of its own project, within its retention', async () => {
    const [projectId, other] = [randomUUID(), randomUUID()];
    const at = (receivedS: number, timeS = receivedS): Sent => ({
      receivedMs: (NOW_S + receivedS) * 1000,
      timeMs: (NOW_S + timeS) * 1000,
      message: 'disk',
    });
    await store(projectId, [at(-11), at(-10), at(-1), at(0), at(-9, -200)]);
    await store(other, [at(-5)]);
    const range = { fromS: NOW_S - 10, toS: NOW_S, bucketS: 1 };
    const pairsOf = async (oldestNs: bigint): Promise<number[][]> => {
      const counts = await queries.countBuckets({ projectId, oldestNs }, ruleOf('1m'), range);
      return counts.map(({ receivedSecond, second, count }) => [
        receivedSecond - NOW_S,
        second - NOW_S,
        count,
      ]);
    };
    expect(await pairsOf(0n)).toEqual([
      [-10, -10, 1],
      [-1, -1, 1],
    ]);
    expect(await pairsOf(NOW_NS - 5_000_000_000n)).toEqual([[-1, -1, 1]]);
  });
});

describe('countBuckets of too much', () => {
  it('is refused as too expensive, rather than answered in part', async () => {
    const projectId = randomUUID();
    await engine.store.command(
      `INSERT INTO logs (project_id, retention_days, time, seq, received_at, level, message)
        SELECT {project:UUID}, 30, fromUnixTimestamp64Nano((received - number % 300) * 1000000000, 'UTC'), number,
          fromUnixTimestamp64Milli(received * 1000, 'UTC'), 'info', 'disk'
        FROM (SELECT number, {start:Int64} + toInt64(intDiv(number, 300)) AS received FROM numbers(500001))`,
      { project: projectId, start: String(NOW_S - 3000) },
    );
    const range = { fromS: NOW_S - 3000, toS: NOW_S, bucketS: 1 };
    const rule = ruleOf('5m');
    await expect(queries.countBuckets(scopeOf(projectId), rule, range)).rejects.toMatchObject({
      name: 'StoreError',
      kind: 'too_expensive',
    });
    const less = await queries.countBuckets(scopeOf(projectId), rule, { ...range, toS: NOW_S - 2000 });
    expect(less).toHaveLength(300_000);
  });
});

describe('samples', () => {
  it('are the newest matching entries of the range, with their ids and the beginning of their messages', async () => {
    const projectId = randomUUID();
    const sent = Array.from({ length: 9 }, (_, index) => ({
      receivedMs: NOW_MS,
      timeMs: NOW_MS + index * 10,
      message: `${index} ${index === 2 ? 'tape' : 'disk'} ${'ä'.repeat(2000)}`,
    }));
    await store(projectId, sent);
    const range = { fromMs: NOW_MS, toMs: NOW_MS + 50, limit: 5 };
    const samples = await queries.samples(scopeOf(projectId), ruleOf('1m'), range);
    expect(
      samples.map(({ time, message }) => [Date.parse(time) - NOW_MS, message.length, message[0]]),
    ).toEqual([5, 4, 3, 1, 0].map((index) => [index * 10, 1000, String(index)]));
    expect(samples[0]).toMatchObject({ level: 'info', service: 'api' });
    expect(decodeEntryId(samples[0]?.id ?? '')).toEqual({
      timeMs: NOW_MS + 50,
      epoch: 1,
      shard: 3,
      offset: 6,
    });
  });
});
