import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, readdirSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { renderTable } from './support/chaos-table.ts';

/**
 * Tests of the tests: takes one guard of the promise after the other out of a copy of this tree and runs the test
 * that is to notice, which must fail there and pass where nothing was taken out. Exit code 1 when it does not.
 *
 *   npm run guards [-- token fence]
 */
const ROOT = join(import.meta.dirname, '../..');
const TEST_MS_MAX = 6 * 60_000;
/** Neither belongs to the tree, and the second may hold an installation that runs. */
const NOT_COPIED = new Set(['.git', '.logpond']);
const OUTPUT_CHARS_SHOWN = 8_000;
const REASON_CHARS_SHOWN = 160;

const SCRIPTS = 'packages/db/src';

type Edit = { file: string; from: string; to: string };
type Guard = {
  name: string;
  /** What is taken out; each text must be there exactly once. */
  edits: readonly Edit[];
  test: { file: string; name: string };
};

const GUARDS: readonly Guard[] = [
  {
    name: 'token',
    edits: [
      {
        file: 'packages/db/src/log-store.ts',
        from: '        insert_deduplication_token: token,\n',
        to: '',
      },
    ],
    test: { file: 'tests/store/ingest-worker-token.store.test.ts', name: 'F25' },
  },
  {
    name: 'verify',
    edits: [
      {
        file: 'apps/ingest-worker/src/complete.ts',
        from: 'const found = await countAlive(shard, range, rows.dead);',
        to: 'const found = { entries: 0, rows: 0 };',
      },
      {
        file: 'apps/ingest-worker/src/complete.ts',
        from: 'stored = await countAlive(shard, range, rows.dead);',
        to: 'stored = { entries: all.rows, rows: all.rows };',
      },
    ],
    test: { file: 'tests/system/worker-kill.test.ts', name: 'F27' },
  },
  {
    name: 'fence',
    edits: [
      {
        file: `${SCRIPTS}/log-stream.lua/plan.lua`,
        from: 'if cursor[1] ~= ARGV[2] or (cursor[2]',
        to: 'if (cursor[2]',
      },
      {
        file: `${SCRIPTS}/log-stream.lua/commit.lua`,
        from: 'if cursor[1] ~= ARGV[2] then\n  return 0\nend\n',
        to: '',
      },
      {
        file: `${SCRIPTS}/dead-letters.lua/bury.lua`,
        from: "if state[1] ~= ARGV[1] then\n  return 'replaced'\nend\n",
        to: '',
      },
    ],
    test: { file: 'tests/system/leases.test.ts', name: 'F04' },
  },
  {
    name: 'fsync always',
    edits: [
      {
        file: 'apps/standalone/src/redis.ts',
        from: '\nappendfsync always\n',
        to: '\nappendfsync everysec\n',
      },
      {
        file: 'packages/db/src/redis-server-check.ts',
        from: "holds: (value) => value === 'always'",
        to: 'holds: () => true',
      },
    ],
    test: { file: 'tests/system/redis-faults.test.ts', name: 'F07, F08' },
  },
];

type Result = { isPassed: boolean; seconds: number; output: string };

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Copies the tree by hard links: quick and small, and nothing in it may be written in place. */
function copyTree(): string {
  const copy = mkdtempSync(join(tmpdir(), 'logpond-guards-'));
  const entries = readdirSync(ROOT).filter((name) => !NOT_COPIED.has(name));
  const { status, stderr } = spawnSync('cp', ['-al', '--', ...entries.map((name) => join(ROOT, name)), copy]);
  if (status !== 0) throw new Error(`cannot copy the tree by hard links; ${String(stderr)}`);
  // Test runners keep notes there, and would write into the original's.
  for (const cache of ['node_modules/.vite', 'node_modules/.vitest'])
    rmSync(join(copy, cache), { recursive: true, force: true });
  return copy;
}

/** Replaces a text in a file of the copy. The link goes first, so that the original stays as it is. */
function edit(copy: string, { file, from, to }: Edit): void {
  const path = join(copy, file);
  const text = readFileSync(path, 'utf8');
  const times = text.split(from).length - 1;
  if (times !== 1) throw new Error(`${file}: expected ${JSON.stringify(from)} once, found it ${times} times`);
  unlinkSync(path);
  writeFileSync(
    path,
    text.replace(from, () => to),
  );
}

async function runTest(directory: string, { file, name }: Guard['test']): Promise<Result> {
  const startedAt = performance.now();
  const args = ['node_modules/vitest/vitest.mjs', 'run', '--project', projectOf(file), file, '-t', name];
  const child = spawn(process.execPath, args, { cwd: directory, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output = (output + text).slice(-OUTPUT_CHARS_SHOWN);
    });
  }
  const timer = setTimeout(() => child.kill('SIGKILL'), TEST_MS_MAX);
  const [code] = (await once(child, 'close')) as [number | null];
  clearTimeout(timer);
  const seconds = (performance.now() - startedAt) / 1_000;
  // 1 is what vitest ends with when a test failed, but also when it found none.
  const hasRun = /Tests\s.*(passed|failed)/.test(output);
  if (!hasRun) throw new Error(`expected ${file} to hold a test "${name}"; vitest said: ${output}`);
  return { isPassed: code === 0, seconds, output };
}

function projectOf(file: string): string {
  return file.startsWith('tests/store/') ? 'store' : 'system';
}

/** What the first test that failed said. */
function findReason(output: string): string {
  const reason = /Error: (.+)/.exec(stripVTControlCharacters(output))?.[1] ?? 'no reason given';
  return reason.slice(0, REASON_CHARS_SHOWN).replaceAll('|', '/');
}

/** @returns whether the test passes in the whole tree and fails without the guard. */
async function tryGuard({ name, edits, test }: Guard, rows: string[][]): Promise<boolean> {
  const copy = copyTree();
  try {
    const whole = await runTest(copy, test);
    if (!whole.isPassed) say(`${name}: the test does not pass as it is:\n${whole.output}`);
    for (const one of edits) edit(copy, one);
    const without = await runTest(copy, test);
    const hasNoticed = whole.isPassed && !without.isPassed;
    const verdict = without.isPassed ? 'NOT NOTICED' : `failed: ${findReason(without.output)}`;
    rows.push([name, `${test.file}: ${test.name}`, whole.isPassed ? 'passed' : 'FAILED', verdict]);
    say(`${name}: ${rows.at(-1)?.slice(1).join(', ')} (${(whole.seconds + without.seconds).toFixed(0)} s)`);
    return hasNoticed;
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !GUARDS.some((guard) => guard.name === name));
if (unknown.length > 0) {
  say(`expected some of ${GUARDS.map(({ name }) => name).join(', ')}, got ${unknown.join(', ')}`);
  process.exit(2);
}
const rows: string[][] = [];
let areNoticed = true;
for (const guard of GUARDS) {
  if (wanted.length > 0 && !wanted.includes(guard.name)) continue;
  areNoticed = (await tryGuard(guard, rows)) && areNoticed;
}
say(`\n${renderTable(['guard', 'test that notices', 'with the guard', 'without it'], rows)}`);
process.exitCode = areNoticed ? 0 : 1;
