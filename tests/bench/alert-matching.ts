import { randomUUID } from 'node:crypto';
import { BlockColumns } from '@logpond/alert-worker/block-columns';
import { ProjectMatcher } from '@logpond/alerting/matcher';
import type { MatchableRule } from '@logpond/alerting/matcher';
import { decodeBlock } from '@logpond/log-block/decode';
import type { BlockEntry } from '@logpond/log-block/decode';
import { decodeDigest } from '@logpond/log-block/digest';
import { BlockEncoder } from '@logpond/log-block/encode';
import type { AlertCondition } from '@logpond/schema/alert-condition';
import { levelNumberOf, LEVELS } from '@logpond/schema/log-entry';
import { createEntries } from './corpus.ts';
import { median, printTable } from './report.ts';
import type { BenchOptions, Figures } from './report.ts';

const ENTRIES = 200_000;
const ROUNDS = 5;
const BATCH_ENTRIES = 1000;
/** The times of one batch lie within so many seconds, as those of entries that are sent soon after they were made. */
const BATCH_SECONDS = 3;
const RULES = 100;
/** CPU-s per million entries. */
const GATES = { digest: 0.1, text: 0.4 } as const;

const SERVICES = ['checkout', 'gateway', 'inventory', 'mailer', 'payments', 'search', 'sessions', 'web'];
/** Of which the corpus holds many, some and no entries. */
const COMMON = [
  'Rejected by',
  'TIMED OUT',
  'invoice 4',
  'basket',
  'in 99',
  'retried by query',
  'parcel 77',
  'token 1',
];
const RARE = [
  'out of memory',
  'disk full',
  'connection refused',
  'panic',
  'Segfault',
  'deadlock',
  'no such host',
];

type Block = { block: Buffer; digest: Buffer };
type Method = { name: string; run: (blocks: readonly Block[]) => number[] };

/**
 * What it costs to find which of the rules of a project match, per million entries: 100 rules on level and service
 * from the digests, 100 rules on the message in one pass over its column, and both by a loop of every rule over every
 * decoded entry. The three take turns in one run; their counts must be equal, else the run is void.
 */
export async function runAlertMatching(options: BenchOptions): Promise<Figures> {
  const entries = options.entries ?? ENTRIES;
  const blocks = encodeBlocks(options.seed, entries);
  const methods = createMethods();
  const seconds = new Map<string, number[]>(methods.map(({ name }) => [name, []]));
  const counts = new Map(methods.map(({ name, run }) => [name, run(blocks)])); // which also warms it up
  for (let round = 0; round < (options.rounds ?? ROUNDS); round += 1) {
    const order = round % 2 === 0 ? methods : methods.toReversed();
    for (const { name, run } of order) {
      const before = process.cpuUsage();
      run(blocks);
      const { user, system } = process.cpuUsage(before);
      seconds.get(name)?.push((user + system) / entries);
    }
  }
  return Promise.resolve(report(entries, seconds, counts));
}

function createMethods(): Method[] {
  const digestRules = createDigestRules();
  const textRules = createTextRules();
  return [
    { name: 'digest', run: (blocks) => matchDigests(new ProjectMatcher(digestRules), blocks) },
    { name: 'text', run: (blocks) => matchMessages(new ProjectMatcher(textRules), blocks) },
    { name: 'reading of messages alone', run: readMessages },
    { name: 'loop', run: (blocks) => loop([...digestRules, ...textRules], blocks) },
  ];
}

function encodeBlocks(seed: number, count: number): Block[] {
  const blocks: Block[] = [];
  const entries = createEntries(seed, count);
  const encoder = new BlockEncoder();
  const startNs = 1_760_000_000_000_000_000n;
  for (let from = 0; from < entries.length; from += BATCH_ENTRIES) {
    encoder.beginRun(randomUUID(), Number(startNs / 1_000_000n));
    for (const [index, entry] of entries.slice(from, from + BATCH_ENTRIES).entries()) {
      encoder.appendEntry({
        timeNs: startNs + BigInt(Math.floor((index * BATCH_SECONDS) / BATCH_ENTRIES)) * 1_000_000_000n,
        level: levelNumberOf(entry.level) ?? 2,
        service: entry.service,
        message: entry.message,
        metadataJson: JSON.stringify(entry.metadata),
        traceId: entry.trace_id,
      });
    }
    encoder.endRun(100);
    blocks.push(encoder.finish(Number(startNs / 1_000_000n)));
  }
  return blocks;
}

function ruleOf(index: number, condition: Partial<AlertCondition>, service?: string): MatchableRule {
  const whole = { field: 'level', operator: 'equals', threshold: 1, timeWindow: '5m', ...condition } as const;
  return { id: String(index), condition: whole, service };
}

function createDigestRules(): MatchableRule[] {
  return Array.from({ length: RULES }, (_, index) => {
    const service = SERVICES[index % SERVICES.length] ?? '';
    const level = LEVELS[index % LEVELS.length] ?? 'info';
    if (index % 4 === 0) return ruleOf(index, { operator: 'gte', value: level });
    if (index % 4 === 1) return ruleOf(index, { value: level }, service);
    if (index % 4 === 2) return ruleOf(index, { field: 'service', operator: 'in', value: [service, 'web'] });
    return ruleOf(index, { field: 'service', operator: 'contains', value: service.slice(0, 3) });
  });
}

function createTextRules(): MatchableRule[] {
  return Array.from({ length: RULES }, (_, index) => {
    const value = COMMON[index] ?? `${RARE[index % RARE.length] ?? ''} ${index}`;
    return ruleOf(index, { field: 'message', operator: 'contains', value });
  });
}

function matchDigests(matcher: ProjectMatcher, blocks: readonly Block[]): number[] {
  const counts = Array.from({ length: RULES }, () => 0);
  for (const { digest } of blocks) {
    for (const { level, service, count } of decodeDigest(digest)) {
      for (const rule of matcher.matchDigest(level, service)) counts[rule] = (counts[rule] ?? 0) + count;
    }
  }
  return counts;
}

/** With the check of the block and the inflating of its messages. */
function matchMessages(matcher: ProjectMatcher, blocks: readonly Block[]): number[] {
  const counts = Array.from({ length: RULES }, () => 0);
  for (const { block } of blocks) {
    const columns = new BlockColumns(decodeBlock(block));
    matcher.matchRows(columns, 0, columns.rows, (rule) => {
      counts[rule] = (counts[rule] ?? 0) + 1;
    });
  }
  return counts;
}

function readMessages(blocks: readonly Block[]): number[] {
  return [
    blocks.reduce(
      (bytes, { block }) => bytes + (new BlockColumns(decodeBlock(block)).messages().ends.at(-1) ?? 0),
      0,
    ),
  ];
}

/** Every rule on every entry, by plain functions that know nothing of the matcher. */
function loop(rules: readonly MatchableRule[], blocks: readonly Block[]): number[] {
  const tests = rules.map(createPlainTest);
  const counts = tests.map(() => 0);
  for (const { block } of blocks) {
    for (const entry of decodeBlock(block).entries()) {
      const lower = entry.message.toLowerCase();
      for (const [index, test] of tests.entries())
        if (test(entry, lower)) counts[index] = (counts[index] ?? 0) + 1;
    }
  }
  return counts;
}

function createPlainTest({
  condition,
  service,
}: MatchableRule): (entry: BlockEntry, lower: string) => boolean {
  const { field, operator, value } = condition;
  const text = String(value).toLowerCase();
  if (field === 'message') return (_entry, lower) => lower.includes(text);
  if (operator === 'gte') {
    const bound = levelNumberOf(text) ?? 0;
    return ({ level }) => (levelNumberOf(level) ?? 0) >= bound;
  }
  if (operator === 'equals') return (entry) => entry.level === text && entry.service === service;
  if (Array.isArray(value)) return (entry) => value.includes(entry.service);
  return (entry) => entry.service.toLowerCase().includes(text);
}

function report(
  entries: number,
  seconds: ReadonlyMap<string, readonly number[]>,
  counts: ReadonlyMap<string, readonly number[]>,
): Figures {
  const rows = [...seconds].map(([name, values]) => ({
    name,
    median: median(values),
    min: Math.min(...values),
    max: Math.max(...values),
  }));
  printTable(
    `CPU-s per million entries: ${RULES} rules on level and service, ${RULES} on the message (contains), ${entries} entries in batches of ${BATCH_ENTRIES}`,
    ['method', 'median', 'least', 'greatest'],
    rows.map(({ name, ...figures }) => [
      name,
      ...[figures.median, figures.min, figures.max].map((s) => s.toFixed(3)),
    ]),
  );
  const both = [...(counts.get('digest') ?? []), ...(counts.get('text') ?? [])];
  const matches = both.reduce((sum, count) => sum + count, 0);
  const isEqual = matches > 0 && JSON.stringify(both) === JSON.stringify(counts.get('loop'));
  const failed = Object.entries(GATES).filter(([name, gate]) => {
    return !rows.some((row) => row.name === name && row.median <= gate);
  });
  console.log(
    `\n${matches} matches; ${isEqual ? 'the counts of all rules are equal' : 'the counts are NOT equal: this run is void'}; ${
      failed.length === 0 ? 'within' : `NOT within, in ${failed.map(([name]) => name).join(' and ')},`
    } the targets ${JSON.stringify(GATES)}`,
  );
  return { entries, rows, matches, isEqual, gates: GATES, isWithinGates: failed.length === 0 };
}
