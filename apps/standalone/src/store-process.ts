import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { delimiter, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

/** A store of this machine, running as a child of this process. */
export type StoreProcess = {
  url: string;
  port: number;
  pid: number;
  child: ChildProcess;
  /** SIGTERM, then SIGKILL after 20 s; resolves when the process is gone. */
  stop: () => Promise<void>;
};

export type Command = { command: string; args: readonly string[] };

const POLL_MS = 20;
const OUTPUT_CHARS_KEPT = 1000;
const STOP_DEADLINE_MS = 20_000;

/** The absolute path of a program on PATH, or undefined. */
function findProgram(name: string, path: string): string | undefined {
  for (const directory of path.split(delimiter).filter((part) => part !== '')) {
    const file = join(directory, name);
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {
      // Not in this directory.
    }
  }
  return undefined;
}

/**
 * The command wrapped so that the kernel sends it SIGTERM when its parent dies, however it dies
 * (setpriv(1) of util-linux sets PR_SET_PDEATHSIG and then execs, so the pid stays). Where there is no
 * setpriv, the command as it is.
 */
function tieToParent({ command, args }: Command, path: string): Command {
  const setpriv = process.platform === 'linux' ? findProgram('setpriv', path) : undefined;
  if (setpriv === undefined) return { command, args };
  return { command: setpriv, args: ['--pdeathsig', 'TERM', command, ...args] };
}

/** A port of 127.0.0.1 that nobody listens on at this moment. */
export async function findFreePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Starts a child in a process group of its own, so that a terminal's Ctrl-C does not reach it. */
export function spawnTied(
  command: Command,
  options: { env: Record<string, string>; stdio: ('ignore' | 'pipe' | number)[] },
): ChildProcess {
  const tied = tieToParent(command, options.env['PATH'] ?? '');
  return spawn(tied.command, [...tied.args], { ...options, detached: true });
}

/**
 * Waits until `probe` resolves with true. Rejects when the child ends before, naming its last output, and when
 * `deadlineMs` have passed.
 */
export async function waitUntilReady(
  { name, child, lastOutput }: { name: string; child: ChildProcess; lastOutput: () => string },
  probe: () => Promise<boolean>,
  deadlineMs: number,
): Promise<void> {
  let failure: Error | undefined;
  const fail = (error: Error): void => void (failure ??= error);
  child.once('error', fail);
  child.once('exit', (code, signal) => {
    fail(new Error(`${name} ended at once (${signal ?? `exit code ${code}`}): ${lastOutput()}`));
  });
  const giveUpAt = Date.now() + deadlineMs;
  while (!failure && !(await probe())) {
    if (Date.now() > giveUpAt)
      fail(new Error(`${name} was not ready within ${deadlineMs} ms: ${lastOutput()}`));
    else await delay(POLL_MS);
  }
  if (failure) throw failure;
}

/** The end of what a child writes, for the message when it fails. */
export function keepLastOutput(child: ChildProcess): () => string {
  let tail = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', (text: string) => {
      tail = (tail + text).slice(-OUTPUT_CHARS_KEPT);
    });
  }
  return () => tail.trim() || 'it wrote nothing';
}

/** SIGTERM, then SIGKILL when `deadlineMs` have passed; resolves with true when SIGTERM was enough. */
export async function stopChild(child: ChildProcess, deadlineMs = STOP_DEADLINE_MS): Promise<boolean> {
  if (child.exitCode !== null || child.signalCode !== null) return true;
  let isInTime = true;
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  const timer = setTimeout(() => {
    isInTime = false;
    child.kill('SIGKILL');
  }, deadlineMs);
  await exited;
  clearTimeout(timer);
  return isInTime;
}
