import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { waitFor } from '../support/wait.ts';
import { Installation } from './support/installation.ts';
import type { Credentials } from './support/installation.ts';
import { createRandom } from './support/random.ts';
import { collectRealLogs, countLines, writeCopies } from './support/real-logs.ts';
import type { WrittenLog } from './support/real-logs.ts';

/**
 * Sends this machine's own log files through the command line to a whole installation, repeated with new times
 * until there are enough lines, and proves that every line is counted and that random ones are found by their
 * text. Exit code 1 when one is not.
 *
 *   npm run real-logs -- --lines 100000 --samples 50 --seed 1
 */
const LOGPOND = join(import.meta.dirname, '../../logpond.mjs');
const STORED_MS_MAX = 120_000;
const HOUR_MS = 3_600_000;
/** All lines lie within it, ending now; less than a project's 30 days by far. */
const WINDOW_MS = 24 * HOUR_MS;
const PAGES_MAX = 30;
/** A query holds 512 characters; a longer line is looked for by its beginning, and compared in full. */
const QUERY_CHARS_MAX = 500;
const WORD = /[0-9A-Za-z]{2,}/g;

type Page = { logs: { message: string }[]; total: number; nextCursor: string | null };
type Sample = {
  log: WrittenLog;
  line: string;
  mode: 'fulltext' | 'substring';
  query: string;
  isFound: boolean;
};

const { values } = parseArgs({
  options: {
    lines: { type: 'string', default: '100000' },
    samples: { type: 'string', default: '50' },
    seed: { type: 'string', default: '1' },
  },
});

async function get<T>(credentials: Credentials, path: string, params: Record<string, string>): Promise<T> {
  const answer = await fetch(`${credentials.baseUrl}${path}?${new URLSearchParams(params).toString()}`, {
    headers: { 'X-API-Key': credentials.apiKey },
    signal: AbortSignal.timeout(60_000),
  });
  if (answer.status !== 200)
    throw new Error(`expected 200 of ${path}, got ${answer.status}: ${await answer.text()}`);
  return (await answer.json()) as T;
}

/** Sum over all buckets of a range that holds every line, whatever became of its time. */
async function countStored(credentials: Credentials): Promise<number> {
  const now = Date.now();
  const { timeseries } = await get<{ timeseries: { total: number }[] }>(credentials, '/logs/aggregated', {
    from: new Date(now - 30 * 24 * HOUR_MS).toISOString(),
    to: new Date(now + HOUR_MS).toISOString(),
    interval: '1h',
  });
  return timeseries.reduce((sum, { total }) => sum + total, 0);
}

async function runLogpond({ baseUrl, apiKey }: Credentials, args: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, [LOGPOND, ...args], {
    env: { ...process.env, LOGPOND_URL: baseUrl, LOGPOND_API_KEY: apiKey },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  const keep = (part: Buffer): void => {
    text += part.toString();
  };
  child.stdout.on('data', keep);
  child.stderr.on('data', keep);
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`expected logpond ${args[0]} to end with 0, got ${code}: ${text}`);
  return text.trim();
}

/** Words of the line where it has any, in turn with the line as it is; blank lines have nothing to find them by. */
function chooseSamples(logs: readonly WrittenLog[], count: number, seed: number): Sample[] {
  const random = createRandom(seed);
  const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)] as T;
  // Each line has the same chance: a log comes up as often as it has lines.
  const lines = logs.flatMap((log) =>
    readFileSync(log.path, 'utf8')
      .split('\n')
      .map((line) => ({ log, line: line.replace(/\r$/, '') }))
      .filter(({ line }) => line.trim() !== ''),
  );
  return Array.from({ length: count }, (_, index) => {
    const { log, line } = pick(lines);
    const start = line.slice(0, QUERY_CHARS_MAX);
    // The last word of a line that is cut may be half a word.
    const words = (start.match(WORD) ?? []).slice(0, start === line ? undefined : -1);
    const isFullText = index % 2 === 0 && words.length > 0;
    const mode = isFullText ? 'fulltext' : 'substring';
    return { log, line, mode, query: isFullText ? words.join(' ') : start, isFound: false };
  });
}

/** Whether a search by the sample's text returns an entry whose message is that very line. */
async function isFound(credentials: Credentials, { mode, query, line }: Sample): Promise<boolean> {
  let cursor: string | null = null;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const answer: Page = await get<Page>(credentials, '/logs', {
      q: query,
      searchMode: mode,
      limit: '1000',
      ...(cursor !== null && { cursor }),
    });
    if (answer.logs.some(({ message }) => message === line)) return true;
    cursor = answer.nextCursor;
    if (cursor === null) return false;
  }
  return false;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

function reportLogs(logs: readonly WrittenLog[]): void {
  const byOrigin = Map.groupBy(logs, ({ origin }) => origin);
  say(
    `${'log of this machine'.padEnd(34)}${'lines'.padStart(8)}${'copies'.padStart(8)}${'sent'.padStart(9)}`,
  );
  for (const [origin, group] of byOrigin) {
    const sent = group.reduce((sum, { lines }) => sum + lines, 0);
    const copies = Math.max(...group.map(({ copy }) => copy)) + 1;
    say(
      `${origin.padEnd(34)}${String(Math.round(sent / copies)).padStart(8)}${String(copies).padStart(8)}${String(sent).padStart(9)}`,
    );
  }
}

async function prove(directory: string): Promise<boolean> {
  const logs = writeCopies(collectRealLogs(), {
    directory,
    linesMin: Number(values.lines),
    endMs: Date.now(),
    windowMs: WINDOW_MS,
  });
  // Counted again from the files as they lie on disk, past the code that wrote them.
  const lines = logs.reduce((sum, { path }) => sum + countLines(readFileSync(path)), 0);
  reportLogs(logs);

  await using installation = await Installation.start();
  const { credentials } = installation;
  say(`\n$ logpond send --utc (${logs.length} files)`);
  say(await runLogpond(credentials, ['send', '--utc', ...logs.map(({ path }) => path)]));
  let stored = 0;
  await waitFor(
    'every line to be counted',
    async () => {
      stored = await countStored(credentials);
      return stored >= lines;
    },
    STORED_MS_MAX,
  ).catch(() => {});
  const counted = Number(await runLogpond(credentials, ['search', '--count']));

  const samples = chooseSamples(logs, Number(values.samples), Number(values.seed));
  for (const sample of samples) sample.isFound = await isFound(credentials, sample);
  say('');
  say(`${'lines in the files'.padEnd(42)}${lines}`);
  say(`${'counted by GET /logs/aggregated'.padEnd(42)}${stored}`);
  say(`${'counted by logpond search --count'.padEnd(42)}${counted}`);
  for (const mode of ['fulltext', 'substring'] as const) {
    const own = samples.filter((sample) => sample.mode === mode);
    const found = own.filter((sample) => sample.isFound).length;
    say(`${`random lines found, searchMode=${mode}`.padEnd(42)}${found} of ${own.length}`);
  }
  const missing = samples.filter((sample) => !sample.isFound);
  for (const { log, mode, line } of missing)
    say(`not found by ${mode}: ${log.origin}: ${JSON.stringify(line)}`);
  return stored === lines && counted === lines && missing.length === 0;
}

const directory = mkdtempSync(join(tmpdir(), 'logpond-real-logs-'));
try {
  const isKept = await prove(directory);
  say(isKept ? 'every line is found again' : 'NOT every line is found again');
  process.exitCode = isKept ? 0 : 1;
} finally {
  rmSync(directory, { recursive: true, force: true });
}
