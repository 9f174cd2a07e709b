import {
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

/** The kernel brings to disk what lies about for longer than half a minute; this leaves it ample time. */
const WRITEBACK_MS = 240_000;

export type PowerLoss = {
  /** Files that were never synced and are gone. */
  removed: number;
  /** Files cut to what was synced of them, and the bytes they lost. */
  truncated: number;
  bytes: number;
  /** Renames undone, because nothing was synced after them. */
  undone: number;
};

/**
 * Turns the death of a store that ran under the power-loss shim into a loss of power: whatever of its directory was
 * not synced is taken away. As on ext4 or XFS, every sync also brings to disk all changes of directories before it.
 * What a rename replaced cannot come back, so those stay done, which a disk may do as well.
 *
 * @param directory of the store, which must not run.
 * @param syncLog what the shim wrote; it is begun anew with what is left.
 */
export function losePower(directory: string, syncLog: string): PowerLoss {
  const loss = { removed: 0, truncated: 0, bytes: 0, undone: 0 };
  const { sizes, renames } = readSyncLog(syncLog);
  for (const { from, to } of renames.toReversed()) {
    if (!to.startsWith(directory) || !existsSync(to) || existsSync(from)) continue;
    renameSync(to, from);
    loss.undone += 1;
  }
  const left: string[] = [];
  for (const path of listFiles(directory)) {
    const file = lstatSync(path, { bigint: true });
    const identity = `${file.ino}\t${file.birthtimeNs}`;
    const isOld = Date.now() - Number(file.mtimeMs) > WRITEBACK_MS;
    const synced = isOld ? Number(file.size) : sizes.get(identity);
    if (synced === undefined) {
      rmSync(path);
      loss.removed += 1;
      continue;
    }
    if (synced < Number(file.size)) {
      truncateSync(path, synced);
      loss.truncated += 1;
      loss.bytes += Number(file.size) - synced;
    }
    left.push(`S\t${identity}\t${Math.min(synced, Number(file.size))}\n`);
  }
  writeFileSync(syncLog, left.join(''));
  return loss;
}

type Rename = { from: string; to: string };

/** The synced size of each file by inode and birth, and the renames that replaced nothing since the last sync. */
function readSyncLog(file: string): { sizes: Map<string, number>; renames: Rename[] } {
  const sizes = new Map<string, number>();
  let renames: Rename[] = [];
  const text = existsSync(file) ? readFileSync(file, 'utf8') : '';
  for (const line of text.slice(0, text.lastIndexOf('\n') + 1).split('\n')) {
    const [kind, first = '', second = '', third = ''] = line.split('\t');
    if (kind === 'S' || kind === 'D') renames = [];
    if (kind === 'S') sizes.set(`${first}\t${second}`, Number(third));
    else if (kind === 'R' && first === '0') renames.push({ from: second, to: third });
  }
  return { sizes, renames };
}

/** Not by the option `recursive`: it follows symbolic links, and the engine has some. */
function listFiles(directory: string): string[] {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) return listFiles(path);
    return entry.isFile() ? [path] : [];
  });
}
