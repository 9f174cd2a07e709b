import { accessSync, constants, createReadStream, statSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { CliError, EXIT } from './cli-error.ts';
import { readFileNameTime } from './line-time.ts';
import { LIMITS } from './outgoing-entry.ts';

/** An input of `send`: a file (also gzipped) or standard input. */
export type LineSource = {
  name: string;
  /** Service of its lines when neither they nor the user name one. */
  service: string;
  /** Time of lines before the first that shows one: npm's debug logs have theirs in the file name. */
  initialTime: string | undefined;
  isFile: boolean;
  open: () => Readable;
};

/**
 * The inputs in the order given; none = standard input. A file that is gone is reported and left out,
 * so that one name of many cannot keep the others back (npx prunes npm's logs after the shell has
 * listed them). Throws CliError (exit 2) when nothing is left.
 */
export function listSources(
  paths: readonly string[],
  reportSkipped: (sentence: string) => void,
): LineSource[] {
  if (paths.length === 0) return [readStdin()];
  const sources: LineSource[] = [];
  for (const path of paths) {
    const problem = path === '-' ? undefined : findProblem(path);
    if (problem === undefined) sources.push(path === '-' ? readStdin() : readFileSource(path));
    else reportSkipped(`cannot read ${path}: ${problem}`);
  }
  if (sources.length === 0) throw new CliError(EXIT.usage, 'there is nothing to read');
  return sources;
}

/** "dpkg" of /var/log/dpkg.log.2.gz; names that say little take their folder along: "apt-history". */
export function serviceOfPath(path: string): string {
  const name = basename(path);
  if (/^\d{4}-\d\d-\d\dT[\d_]+Z-debug-\d+\.log$/.test(name)) return 'npm';
  const bare = name.replace(/(\.(gz|log|txt|json|jsonl|ndjson|out|\d{1,8})|-\d{6,8})+$/i, '') || name;
  const folder = basename(dirname(path));
  const isVague = /^(access|error|history|term|messages|current|output|out|std(out|err))$/i.test(bare);
  const service = isVague && !/^(logs?|\.|\.\.|)$/i.test(folder) ? `${folder}-${bare}` : bare;
  return Array.from(service).slice(0, LIMITS.serviceChars).join('');
}

function readStdin(): LineSource {
  return {
    name: 'standard input',
    service: 'stdin',
    initialTime: undefined,
    isFile: false,
    open: () => process.stdin,
  };
}

function findProblem(path: string): string | undefined {
  try {
    accessSync(path, constants.R_OK);
    return statSync(path).isDirectory() ? 'it is a directory' : undefined;
  } catch (cause) {
    return cause instanceof Error ? cause.message : String(cause);
  }
}

function readFileSource(path: string): LineSource {
  return {
    name: path,
    service: serviceOfPath(path),
    initialTime: readFileNameTime(basename(path)),
    isFile: true,
    open: () => openFile(path),
  };
}

function openFile(path: string): Readable {
  const file = createReadStream(path, { highWaterMark: 256 * 1024 });
  // The reader of the unpacked stream sees any error of either; the callback only keeps it from being thrown twice.
  return path.endsWith('.gz') ? pipeline(file, createGunzip(), () => undefined) : file;
}
