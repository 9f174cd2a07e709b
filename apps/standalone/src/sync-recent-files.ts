import { closeSync, fsyncSync, lstatSync, openSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** What was written longer ago the kernel has brought to disk by itself. */
const RECENT_MS = 3_600_000;

/**
 * Brings to disk what lies in a directory and was written within the last hour.
 *
 * The engine does not sync all of a merged part, and keeps the parts it was made of until that has surely been
 * written back. But after a restart it goes by the age of their files and drops old ones within half a minute. A
 * power failure then would take both. What a killed engine left is whole in the kernel's memory: so it is synced
 * before the next engine looks at it.
 */
export function syncRecentFiles(directory: string): void {
  const since = Date.now() - RECENT_MS;
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    // The engine's symbolic links lead to directories that are visited anyway.
    if (entry.isDirectory()) syncRecentFiles(path);
    else if (entry.isFile() && lstatSync(path).mtimeMs >= since) sync(path);
  }
  sync(directory);
}

function sync(path: string): void {
  const file = openSync(path, 'r');
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
