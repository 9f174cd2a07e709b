import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { shardKeys, shardOf } from '@logpond/db/shard-map';
import { waitFor } from '../support/wait.ts';
import { Installation, PROCESS_NAMES } from './support/installation.ts';
import type { Credentials, ProcessName } from './support/installation.ts';

/**
 * Sends numbered entries through the command line to a whole installation, kills each of its processes in turn
 * while they flow, and proves that every number is found exactly once. Exit code 1 when one is not.
 *
 *   npm run kill-each -- --entries 1000000 --kills 2
 */
const CLI = join(import.meta.dirname, '../../apps/cli/src/main.ts');
const TIME_MS_MAX = 15 * 60_000;
/** One-machine mode (apps/standalone/src/config.ts). */
const SHARDS = 2;
const CHUNK_LINES = 500;
const RESTART_MS_MAX = 60_000;

const { values } = parseArgs({
  options: { entries: { type: 'string', default: '1000000' }, kills: { type: 'string', default: '2' } },
});
const entries = readCount('entries', values.entries);
const kills = readCount('kills', values.kills);

type Kill = { name: ProcessName; atEntry: number; backMs: number; readyMs: number };
type Proof = { found: number; lost: number; duplicated: number; foreign: number; counted: number };

function readCount(name: string, text: string): number {
  const count = Number(text);
  if (!Number.isInteger(count) || count < 1)
    throw new RangeError(`--${name}: expected a number from 1 on, got ${text}`);
  return count;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Writes the lines to the command line, never more of them than `allowance` gives out. */
async function feed(
  input: NodeJS.WritableStream,
  progress: { written: number; allowance: number },
): Promise<void> {
  while (progress.written < entries) {
    await waitFor('the next kill', () => progress.allowance > progress.written, TIME_MS_MAX);
    const to = Math.min(progress.written + CHUNK_LINES, Math.ceil(progress.allowance), entries);
    let text = '';
    for (let number = progress.written; number < to; number += 1) {
      text += `{"service":"kill-each","level":"info","message":"number ${number} of the run","number":${number}}\n`;
    }
    progress.written = to;
    if (!input.write(text)) await once(input, 'drain');
  }
  input.end();
}

/** Kills one process and waits until the launcher has started it again and the whole is ready. */
async function kill(installation: Installation, name: ProcessName, atEntry: number): Promise<Kill> {
  const pid = await waitFor(`${name} to run`, () => installation.findProcess(name), RESTART_MS_MAX);
  const killedAt = performance.now();
  process.kill(pid, 'SIGKILL');
  await waitFor(
    `${name} to be back`,
    () => {
      const next = installation.findProcess(name);
      return next !== undefined && next !== pid;
    },
    RESTART_MS_MAX,
  );
  const backMs = performance.now() - killedAt;
  await waitFor('the installation to be ready', async () => installation.isReady(), RESTART_MS_MAX);
  return { name, atEntry, backMs, readyMs: performance.now() - killedAt };
}

/** Sends everything while each process is killed `kills` times, spread over the whole of it. */
async function sendUnderKills(installation: Installation): Promise<Kill[]> {
  const env = { ...process.env, LOGPOND_DATA_DIR: installation.dataDir };
  const sender = spawn(process.execPath, [CLI, 'send'], { env, stdio: ['pipe', 'inherit', 'inherit'] });
  const ended = once(sender, 'exit');
  const order = Array.from({ length: kills }, () => PROCESS_NAMES).flat();
  const slice = entries / (order.length + 1);
  const progress = { written: 0, allowance: slice };
  const fed = feed(sender.stdin, progress);
  const done: Kill[] = [];
  for (const [turn, name] of order.entries()) {
    const place = (turn + 0.7) * slice;
    await waitFor(`entry ${Math.round(place)} to be sent`, () => progress.written >= place, TIME_MS_MAX);
    done.push(await kill(installation, name, progress.written));
    say(
      `killed ${name} at entry ${progress.written}, all ready after ${Math.round(done.at(-1)?.readyMs ?? 0)} ms`,
    );
    progress.allowance += slice;
  }
  progress.allowance = entries;
  await fed;
  const [code] = (await ended) as [number | null];
  if (code !== 0) throw new Error(`expected the sender to end with 0, got ${code}`);
  return done;
}

/** Waits until everything acknowledged is committed. */
async function waitForRest(installation: Installation, { projectId }: Credentials): Promise<void> {
  const redis = installation.connectRedis();
  const { state } = shardKeys('lp', shardOf(projectId, SHARDS));
  try {
    await waitFor(
      'everything to be stored',
      async () => {
        const [next, committed, plan] = await redis.hmget(state, 'next', 'ingest:done', 'ingest:plan');
        return next === committed && plan === null;
      },
      TIME_MS_MAX,
    );
  } finally {
    redis.disconnect();
  }
}

async function get<T>(
  { baseUrl, apiKey }: Credentials,
  path: string,
  params: Record<string, string>,
): Promise<T> {
  const answer = await fetch(`${baseUrl}${path}?${new URLSearchParams(params).toString()}`, {
    headers: { 'X-API-Key': apiKey },
    signal: AbortSignal.timeout(60_000),
  });
  if (answer.status !== 200)
    throw new Error(`expected 200 of ${path}, got ${answer.status}: ${await answer.text()}`);
  return (await answer.json()) as T;
}

/** Reads every entry back by cursor and ticks off its number; counts besides by /logs/aggregated. */
async function prove(credentials: Credentials): Promise<Proof> {
  const seen = new Uint8Array(entries);
  const proof: Proof = { found: 0, lost: 0, duplicated: 0, foreign: 0, counted: 0 };
  type Page = { logs: { metadata: { number?: number } }[]; hasMore: boolean; nextCursor: string | null };
  let cursor: string | null = null;
  do {
    const page: Page = await get<Page>(credentials, '/logs', {
      limit: '1000',
      ...(cursor !== null && { cursor }),
    });
    for (const { metadata } of page.logs) {
      const number = metadata.number ?? -1;
      proof.found += 1;
      if (!(number in seen)) proof.foreign += 1;
      else if (seen[number] !== 0) proof.duplicated += 1;
      else seen[number] = 1;
    }
    cursor = page.hasMore ? page.nextCursor : null;
  } while (cursor !== null);
  proof.lost = seen.reduce((sum, mark) => sum + (mark === 0 ? 1 : 0), 0);
  type Aggregate = { timeseries: { total: number }[] };
  const { timeseries } = await get<Aggregate>(credentials, '/logs/aggregated', { interval: '1h' });
  proof.counted = timeseries.reduce((sum, { total }) => sum + total, 0);
  return proof;
}

function report(killed: readonly Kill[], proof: Proof, seconds: number): void {
  say('');
  say('process         kills   started again after (ms)    all ready after (ms)');
  for (const name of PROCESS_NAMES) {
    const own = killed.filter((one) => one.name === name);
    const back = own.map(({ backMs }) => Math.round(backMs)).join(', ');
    const ready = own.map(({ readyMs }) => Math.round(readyMs)).join(', ');
    say(`${name.padEnd(16)}${String(own.length).padEnd(8)}${back.padEnd(28)}${ready}`);
  }
  say('');
  for (const [name, count] of Object.entries({ sent: entries, ...proof })) say(`${name.padEnd(16)}${count}`);
  say(`${'seconds'.padEnd(16)}${seconds.toFixed(0)}`);
}

const startedAt = performance.now();
const watchdog = setTimeout(() => {
  say(`not done within ${TIME_MS_MAX / 60_000} minutes`);
  process.exit(1);
}, TIME_MS_MAX);
{
  await using installation = await Installation.start();
  const killed = await sendUnderKills(installation);
  await waitForRest(installation, installation.credentials);
  const proof = await prove(installation.credentials);
  report(killed, proof, (performance.now() - startedAt) / 1_000);
  const isKept =
    proof.lost + proof.duplicated + proof.foreign === 0 &&
    proof.found === entries &&
    proof.counted === entries;
  say(isKept ? 'kept: nothing lost, nothing duplicated' : 'BROKEN: the promise was not kept');
  process.exitCode = isKept ? 0 : 1;
}
clearTimeout(watchdog);
