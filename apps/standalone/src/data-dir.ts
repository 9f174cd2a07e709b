import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { isRunning } from './process-info.ts';

const LAUNCHER_MARK = 'standalone/src/main.ts';
const ORPHAN_STOP_MS = 10_000;
const POLL_MS = 50;

const childrenSchema = z.record(z.string(), z.object({ pid: z.number().int(), marks: z.array(z.string()) }));

/** A sentence for the person at the terminal: no stack, exit code 1. */
export class LauncherError extends Error {
  override readonly name = 'LauncherError';
}

/**
 * One launcher's hold on a data directory: while it lives, no other starts there; the processes it has started
 * are written down, so that the next one can end what a killed launcher left behind.
 */
export class DataDir implements Disposable {
  readonly path: string;
  readonly #children: z.infer<typeof childrenSchema> = {};

  private constructor(path: string) {
    this.path = path;
  }

  /** Takes the directory, creating it (mode 0700). Throws LauncherError when another launcher has it. */
  static async open(path: string): Promise<DataDir> {
    try {
      mkdirSync(join(path, 'logs'), { recursive: true, mode: 0o700 });
      chmodSync(path, 0o700);
    } catch (cause) {
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new LauncherError(
        `The data directory ${path} cannot be used: ${reason}; choose another with LOGPOND_DATA_DIR.`,
        {
          cause,
        },
      );
    }
    takeLock(path);
    const dataDir = new DataDir(path);
    await endOrphans(dataDir.#childrenFile);
    dataDir.#write();
    return dataDir;
  }

  /** Where a process of this name keeps its files. */
  resolve(name: string): string {
    return join(this.path, name);
  }

  /** Writes down a started process; `marks` are parts of its command line by which it is known again. */
  recordChild(name: string, pid: number, marks: readonly string[]): void {
    this.#children[name] = { pid, marks: [...marks] };
    this.#write();
  }

  forgetChild(name: string): void {
    delete this.#children[name];
    this.#write();
  }

  get #childrenFile(): string {
    return join(this.path, 'children.json');
  }

  #write(): void {
    writeAtomically(this.#childrenFile, `${JSON.stringify(this.#children)}\n`);
  }

  [Symbol.dispose](): void {
    rmSync(join(this.path, 'launcher.pid'), { force: true });
  }
}

/** Replaces a file in one step; mode 0600. */
export function writeAtomically(file: string, text: string): void {
  writeFileSync(`${file}.new`, text, { mode: 0o600, flush: true });
  renameSync(`${file}.new`, file);
}

function takeLock(path: string): void {
  const file = join(path, 'launcher.pid');
  for (;;) {
    try {
      writeFileSync(file, String(process.pid), { flag: 'wx', mode: 0o600 });
      return;
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
    }
    const holder = Number(readText(file) ?? 0);
    if (holder !== process.pid && isRunning(holder, [LAUNCHER_MARK])) {
      throw new LauncherError(
        `Logpond runs on ${path} already, as process ${holder}: stop that one first, or choose another directory with LOGPOND_DATA_DIR.`,
      );
    }
    // Renamed, not removed: of two that find it stale only one gets it.
    try {
      renameSync(file, `${file}.${process.pid}`);
      rmSync(`${file}.${process.pid}`);
    } catch {
      // The other one was faster; the next round sees its lock.
    }
  }
}

/** Two servers on one directory would damage it, so what a killed launcher left must be gone first. */
async function endOrphans(childrenFile: string): Promise<void> {
  const text = readText(childrenFile);
  const parsed = childrenSchema.safeParse(text === undefined ? {} : parseJson(text));
  const orphans = Object.values(parsed.data ?? {}).filter(({ pid, marks }) => isRunning(pid, marks));
  for (const { pid } of orphans) signal(pid, 'SIGTERM');
  const killAt = Date.now() + ORPHAN_STOP_MS;
  for (const { pid, marks } of orphans) {
    while (isRunning(pid, marks)) {
      if (Date.now() > killAt) signal(pid, 'SIGKILL');
      await delay(POLL_MS);
    }
  }
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has just ended.
  }
}

function readText(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
