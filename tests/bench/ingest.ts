import { shardKeys, shardOf } from '@logpond/db/shard-map';
import type { Redis } from 'ioredis';
import type { Installation } from '../system/support/installation.ts';
import { waitFor } from '../support/wait.ts';
import { ApiClient } from './api-client.ts';
import { BenchTable } from './bench-table.ts';
import { createCorpus } from './corpus.ts';
import type { Corpus } from './corpus.ts';
import { CostMeter } from './process-cost.ts';
import { median, printTable } from './report.ts';
import type { BenchOptions, Figures } from './report.ts';

const ENTRIES = 200_000;
const ROUNDS = 5;
const BATCH_ENTRIES = 1_000;
const BODIES = 8;
const DIRECT_ROWS = 50_000;
const CONCURRENCY = 8;
const DRAIN_MS_MAX = 60_000;
/** One-machine mode and its keys (apps/standalone/src/config.ts). */
const SHARDS = 2;
const KEY_PREFIX = 'lp';
/** A round whose ceiling is further off the median ran on a disturbed machine. */
const CEILING_SPREAD_MAX = 0.25;

const LEGS = ['api', 'redis', 'ingest-worker', 'clickhouse', 'alert-worker', 'launcher'] as const;
type Leg = (typeof LEGS)[number];
/** CPU seconds per million entries. */
type Round = {
  legs: Record<Leg, number>;
  total: number;
  direct: number;
  parse: number;
  entriesPerSecond: number;
};
type Rig = {
  installation: Installation;
  client: ApiClient;
  table: BenchTable;
  redis: Redis;
  corpus: Corpus;
  entries: number;
};

/**
 * From the socket to queryable, against the engine's own JSONEachRow insert of the same rows into a table of the
 * same schema (without the product's hourly counts), in turns, merges stopped. Void unless both hold the same.
 */
export async function runIngest(installation: Installation, options: BenchOptions): Promise<Figures> {
  const entries = Math.ceil((options.entries ?? ENTRIES) / DIRECT_ROWS) * DIRECT_ROWS;
  const { projectId } = installation.credentials;
  const corpus = createCorpus({
    seed: options.seed,
    bodyCount: BODIES,
    batchEntries: BATCH_ENTRIES,
    projectId,
    nowMs: Date.now(),
  });
  const redis = installation.connectRedis();
  try {
    using client = new ApiClient(installation.credentials);
    await using table = await BenchTable.create(installation);
    const rig: Rig = { installation, client, table, redis, corpus, entries };
    const rounds: Round[] = [];
    // The first warms both sides up.
    for (let index = 0; index <= (options.rounds ?? ROUNDS); index += 1) {
      const round = await runRound(rig);
      if (index > 0) rounds.push(round);
    }
    const { product, direct } = await table.compare();
    const expected = entries * (rounds.length + 1);
    if (product.rows !== expected || direct.rows !== expected || product.hash !== direct.hash)
      throw new Error(
        `void: expected ${expected} equal rows in both tables, got ${JSON.stringify({ product, direct })}`,
      );
    const engine = await table.readEngineVersion();
    return {
      engine,
      checksum: corpus.checksum,
      entriesPerRound: entries,
      ...report(rounds, corpus, entries),
    };
  } finally {
    redis.disconnect();
  }
}

async function runRound(rig: Rig): Promise<Round> {
  const { entries, corpus, installation } = rig;
  const perMillion = (seconds: number): number => (seconds * 1e6) / entries;
  const meter = new CostMeter(installation);
  await sendAll(rig);
  const { costs, seconds } = meter.read();
  const costOf = (name: string): number =>
    perMillion(costs.find((cost) => cost.name === name)?.cpuSeconds ?? Number.NaN);
  const legs = Object.fromEntries(LEGS.map((leg) => [leg, costOf(leg)])) as Record<Leg, number>;

  meter.restart();
  await insertDirectly(rig);
  const direct = perMillion(
    meter.read().costs.find(({ name }) => name === 'clickhouse')?.cpuSeconds ?? Number.NaN,
  );

  const before = process.cpuUsage();
  for (let batch = 0; batch < entries / BATCH_ENTRIES; batch += 1) {
    JSON.parse((corpus.bodies[batch % BODIES] as Buffer).toString());
  }
  const parse = process.cpuUsage(before);
  return {
    legs,
    total: Object.values(legs).reduce((sum, value) => sum + value, 0),
    direct,
    parse: perMillion((parse.user + parse.system) / 1e6),
    entriesPerSecond: entries / seconds,
  };
}

/** Sends every batch and waits until the worker has committed them all: from then on they are found. */
async function sendAll({ client, redis, corpus, entries, installation }: Rig): Promise<void> {
  const batches = entries / BATCH_ENTRIES;
  let next = 0;
  let acknowledged = 0;
  const send = async (): Promise<void> => {
    while (next < batches) {
      const body = corpus.bodies[next % BODIES] as Buffer;
      next += 1;
      const received = await client.ingest(body);
      acknowledged += received;
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, send));
  if (acknowledged !== entries)
    throw new Error(`void: expected ${entries} acknowledged, got ${acknowledged}`);
  const { state } = shardKeys(KEY_PREFIX, shardOf(installation.credentials.projectId, SHARDS));
  await waitFor(
    'everything to be committed',
    async () => {
      const [admitted, committed, plan] = await redis.hmget(state, 'next', 'ingest:done', 'ingest:plan');
      return admitted === committed && plan === null;
    },
    DRAIN_MS_MAX,
  );
}

async function insertDirectly({ table, corpus, entries }: Rig): Promise<void> {
  const batches = entries / BATCH_ENTRIES;
  const perInsert = DIRECT_ROWS / BATCH_ENTRIES;
  for (let from = 0; from < batches; from += perInsert) {
    await table.insertJson(
      Array.from({ length: perInsert }, (_, index) => corpus.rows[(from + index) % BODIES] as Buffer),
    );
  }
}

function report(rounds: readonly Round[], corpus: Corpus, entries: number): Figures {
  const ceiling = median(rounds.map(({ direct }) => direct));
  const isCalm = ({ direct }: Round): boolean => Math.abs(direct / ceiling - 1) <= CEILING_SPREAD_MAX;
  const kept = rounds.filter(isCalm);
  const measures: Record<string, (round: Round) => number> = {
    ...Object.fromEntries(LEGS.map((leg) => [leg, ({ legs }: Round) => legs[leg]])),
    'to queryable, total': ({ total }) => total,
    "engine's JSONEachRow": ({ direct }) => direct,
    'JSON.parse of the bodies': ({ parse }) => parse,
    'ratio total / JSONEachRow': ({ total, direct }) => total / direct,
    'ratio api / JSON.parse': ({ legs, parse }) => legs.api / parse,
  };
  const summary = Object.entries(measures).map(([name, measure]) => {
    const values = kept.map(measure);
    return { name, median: median(values), min: Math.min(...values), max: Math.max(...values) };
  });
  printTable(
    `CPU-s per million entries; ${kept.length} rounds of ${entries} entries, batches of ${BATCH_ENTRIES}, ` +
      `${corpus.entryBytesMean.toFixed(0)} bytes an entry, merges stopped`,
    ['', 'median', 'min', 'max'],
    summary.map(({ name, ...row }) => [name, row.median.toFixed(2), row.min.toFixed(2), row.max.toFixed(2)]),
  );
  const dropped = rounds.filter((round) => !isCalm(round));
  for (const { total, direct } of dropped)
    console.log(
      `dropped a round: JSONEachRow ${direct.toFixed(2)} is off its median, total ${total.toFixed(2)}`,
    );
  console.log(
    `Acknowledged = stored, equal content in both tables; ${Math.round(median(kept.map(({ entriesPerSecond }) => entriesPerSecond)))} entries/s to queryable, load generator on the same cores.`,
  );
  return { entryBytesMean: corpus.entryBytesMean, rounds, droppedRounds: dropped.length, summary };
}
