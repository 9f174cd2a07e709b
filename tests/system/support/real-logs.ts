import { spawnSync } from 'node:child_process';
import { globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { gunzipSync } from 'node:zlib';

/** A log as it lies on this machine. */
type RealLog = { origin: string; path: string; text: string };

/** A copy of one with new times. */
export type WrittenLog = { origin: string; copy: number; path: string; lines: number };

const PATTERNS = ['/var/log/*.log', '/var/log/*.log.*', '/var/log/apt/*.log', '/var/log/apt/*.log.*'];
const JOURNAL = ['journalctl', '-o', 'short-iso', '--no-pager', '-q'] as const;
const BINARY = /\.(xz|zst|bz2)$/;
const NPM_LOG = /^(\d{4}-\d\d-\d\dT[\d_]+Z)-debug-\d+\.log$/;
/** Where dpkg, apt, update-alternatives and journalctl write a line's time; with its separator. */
const LINE_TIME =
  /^((?:update-alternatives |[A-Z][A-Za-z -]{0,20}: )?)\d{4}-\d\d-\d\d([T ]{1,2})\d\d:\d\d:\d\d((?:[+-]\d{4})?)/;

/** dpkg, apt, the other text logs, npm's debug logs and the journal, as far as there are any. */
export function collectRealLogs(): RealLog[] {
  const system = globSync(PATTERNS).filter((path) => !BINARY.test(path));
  const npm = globSync(join(homedir(), '.npm/_logs/*.log'));
  const logs = [...system, ...npm].flatMap((path) => {
    const origin = NPM_LOG.test(basename(path)) ? '~/.npm/_logs/*-debug-0.log' : path;
    const text = readLog(path);
    return text === undefined || text === '' ? [] : [{ origin, path, text }];
  });
  const [command, ...args] = JOURNAL;
  const journal = spawnSync(command, args, {
    encoding: 'utf8',
    maxBuffer: 256 * 1024 * 1024,
  });
  if (journal.status === 0 && journal.stdout.includes('\n'))
    logs.push({ origin: 'journalctl -o short-iso', path: 'journal.log', text: journal.stdout });
  if (logs.length === 0) throw new Error(`expected log files under ${PATTERNS.join(', ')}, found none`);
  return logs.toSorted((left, right) => left.origin.localeCompare(right.origin));
}

/**
 * Writes all logs over and over until there are `linesMin` lines. Every line that shows a time gets a new one in
 * its own format and in UTC, evenly spread over the window that ends at `endMs`; all else stays as it was.
 */
export function writeCopies(
  logs: readonly RealLog[],
  options: { directory: string; linesMin: number; endMs: number; windowMs: number },
): WrittenLog[] {
  const linesOnce = logs.reduce((sum, { text }) => sum + countLines(Buffer.from(text)), 0);
  const copies = Math.ceil(options.linesMin / linesOnce);
  const written: WrittenLog[] = [];
  const sliceMs = options.windowMs / copies;
  for (let copy = 0; copy < copies; copy += 1) {
    const startMs = options.endMs - options.windowMs + copy * sliceMs;
    for (const [index, log] of logs.entries()) {
      const time = new Date(startMs + (index * sliceMs) / logs.length).toISOString();
      const path = join(options.directory, `copy-${copy}`, nameCopy(log.path, time));
      const text = setTimes(log.text, startMs, sliceMs);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, text);
      written.push({ origin: log.origin, copy, path, lines: countLines(Buffer.from(text)) });
    }
  }
  return written;
}

/** Line ends (what `wc -l` counts), and one more for a last line without one. */
export function countLines(bytes: Buffer): number {
  let count = bytes.length > 0 && bytes.at(-1) !== 10 ? 1 : 0;
  for (const byte of bytes) if (byte === 10) count += 1;
  return count;
}

/** npm prunes its debug logs whenever it runs: one may be gone since the listing. */
function readLog(path: string): string | undefined {
  try {
    const bytes = readFileSync(path);
    return (path.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Folder and name as they were, since both name the service; npm's names hold the time. */
function nameCopy(path: string, time: string): string {
  const name = basename(path).replace(/\.gz$/, '');
  const original = NPM_LOG.exec(name)?.[1];
  const renamed = original === undefined ? name : name.replace(original, time.replaceAll(/[:.]/g, '_'));
  return join(basename(dirname(path)), renamed);
}

function setTimes(text: string, startMs: number, sliceMs: number): string {
  const lines = text.split('\n');
  const timed = lines.reduce((sum, line) => sum + (LINE_TIME.test(line) ? 1 : 0), 0);
  let seen = 0;
  return lines
    .map((line) =>
      line.replace(LINE_TIME, (_, lead: string, separator: string, zone: string) => {
        const time = new Date(startMs + (seen * sliceMs) / timed).toISOString();
        seen += 1;
        return `${lead}${time.slice(0, 10)}${separator}${time.slice(11, 19)}${zone === '' ? '' : '+0000'}`;
      }),
    )
    .join('\n');
}
