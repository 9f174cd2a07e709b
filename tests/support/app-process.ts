import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import nodeFlags from '@logpond/runtime/node-flags.json' with { type: 'json' };

const ROOT = join(import.meta.dirname, '../..');
const STOP_DEADLINE_MS = 30_000;

/** An app of this repository, running as a process of its own. */
export type AppProcess = AsyncDisposable & {
  child: ChildProcess;
  /** What it wrote so far, both streams. */
  output: () => string;
  /** Sends SIGKILL and waits until it is gone. */
  kill: () => Promise<void>;
  /** Sends SIGTERM and waits until it is gone. @returns its exit code. */
  stop: () => Promise<number | null>;
};

/** Starts `apps/<name>/src/main.ts`. @param env is added to this process's own. */
export function startApp(name: string, env: Readonly<Record<string, string>>): AppProcess {
  const child = spawn(process.execPath, [...nodeFlags, join(ROOT, 'apps', name, 'src/main.ts')], {
    env: { ...process.env, LOG_LEVEL: 'info', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  const keep = (part: Buffer): void => {
    text = (text + part.toString()).slice(-200_000);
  };
  child.stdout.on('data', keep);
  child.stderr.on('data', keep);
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill(signal);
    const deadline = setTimeout(() => child.kill('SIGKILL'), STOP_DEADLINE_MS);
    await gone;
    clearTimeout(deadline);
  };
  return {
    child,
    output: () => text,
    kill: async () => end('SIGKILL'),
    stop: async () => {
      await end('SIGTERM');
      return child.exitCode;
    },
    [Symbol.asyncDispose]: async () => end('SIGKILL'),
  };
}
