import { setTimeout as delay } from 'node:timers/promises';
import type { Installation } from '../system/support/installation.ts';
import { ApiClient } from './api-client.ts';
import { createEntries } from './corpus.ts';
import type { CorpusEntry } from './corpus.ts';
import { CostMeter } from './process-cost.ts';
import { printTable, reportCosts, summarize } from './report.ts';
import type { BenchOptions, Figures } from './report.ts';

const ENTRIES_PER_SECOND = 100;
const SECONDS = 120;
const WARM_UP_SECONDS = 10;
const CORPUS_ENTRIES = 1_000;

const SHAPES = [
  { name: '100 requests/s of 1 entry', batchEntries: 1 },
  { name: '1 request/s of 100 entries', batchEntries: 100 },
] as const;

/** 100 entries per second in two shapes: processor time of all processes, and the time to the receipt. */
export async function runLowLoad(installation: Installation, options: BenchOptions): Promise<Figures> {
  const entries = createEntries(options.seed, CORPUS_ENTRIES);
  using client = new ApiClient(installation.credentials);
  const figures: Figures = {};
  for (const { name, batchEntries } of SHAPES) {
    const bodies = cutBodies(entries, batchEntries);
    await sendSteadily(client, bodies, { batchEntries, seconds: WARM_UP_SECONDS });
    const meter = new CostMeter(installation);
    const ackMs = await sendSteadily(client, bodies, { batchEntries, seconds: options.seconds ?? SECONDS });
    const { costs, seconds } = meter.read();
    const acknowledged = summarize(ackMs);
    figures[name] = { ...reportCosts(name, costs, seconds), ackMs: acknowledged };
    printTable(
      'to the receipt, from the moment it was due',
      ['requests', 'p50, ms', 'p99, ms', 'max, ms'],
      [
        [
          String(ackMs.length),
          acknowledged.p50.toFixed(1),
          acknowledged.p99.toFixed(1),
          acknowledged.max.toFixed(1),
        ],
      ],
    );
  }
  return figures;
}

/** Entries get the time of their arrival, as from a shipper that sends at once. */
function cutBodies(entries: readonly CorpusEntry[], batchEntries: number): Buffer[] {
  const bodies: Buffer[] = [];
  for (let from = 0; from + batchEntries <= entries.length; from += batchEntries) {
    const logs = entries.slice(from, from + batchEntries).map((entry) => ({ ...entry, beforeMs: undefined }));
    // JSON leaves out what is undefined.
    bodies.push(Buffer.from(JSON.stringify({ logs })));
  }
  return bodies;
}

/** Open loop: a request is due by the clock, whether or not the one before is answered. */
async function sendSteadily(
  client: ApiClient,
  bodies: readonly Buffer[],
  { batchEntries, seconds }: { batchEntries: number; seconds: number },
): Promise<number[]> {
  const intervalMs = (1_000 * batchEntries) / ENTRIES_PER_SECOND;
  const count = Math.round((seconds * 1_000) / intervalMs);
  const startedAt = performance.now();
  const answers: Promise<number>[] = [];
  for (let index = 0; index < count; index += 1) {
    const dueAt = startedAt + index * intervalMs;
    const earlyMs = dueAt - performance.now();
    if (earlyMs > 0) await delay(earlyMs);
    const body = bodies[index % bodies.length] as Buffer;
    const answer = client.ingest(body).then(() => performance.now() - dueAt);
    // Awaited below with all others; a failure before must not end the process.
    answer.catch(() => {});
    answers.push(answer);
  }
  return Promise.all(answers);
}
