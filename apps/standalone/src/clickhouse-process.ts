import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { inheritEnvironment } from '@logpond/runtime/env';
import { findFreePort, keepLastOutput, spawnTied, stopChild, waitUntilReady } from './store-process.ts';
import type { Command, StoreProcess } from './store-process.ts';

export type ClickHouseProcessOptions = {
  dataDir: string;
  /** On loopback; absent or 0 takes a free one. */
  port?: number;
  user?: string;
  password?: string;
};

/** libuv threads of the engine's process: two inserts, eight searches, two to spare for KILL QUERY. */
const THREADS = 12;
const START_MS_MAX = 60_000;
const PING_MS_MAX = 2_000;

/** The command that serves the embedded engine of a data directory, and its environment. */
export function prepareClickHouse(options: {
  dataDir: string;
  port: number;
  user: string;
  password: string;
}): Command & { env: Record<string, string> } {
  return {
    command: process.execPath,
    args: [join(import.meta.dirname, 'clickhouse.ts')],
    env: {
      CLICKHOUSE_DATA_DIR: options.dataDir,
      CLICKHOUSE_PORT: String(options.port),
      CLICKHOUSE_USER: options.user,
      CLICKHOUSE_PASSWORD: options.password,
      UV_THREADPOOL_SIZE: String(THREADS),
    },
  };
}

/**
 * Starts the embedded engine as a child on loopback and waits until it answers, at most 60 s. The user is
 * `default` and the password random unless given; both are in the answer.
 */
export async function spawnClickHouse(
  options: ClickHouseProcessOptions,
): Promise<StoreProcess & { user: string; password: string }> {
  const port = options.port || (await findFreePort());
  const user = options.user ?? 'default';
  const password = options.password ?? randomBytes(24).toString('base64url');
  const { env, ...command } = prepareClickHouse({ dataDir: options.dataDir, port, user, password });
  const child = spawnTied(command, { env: inheritEnvironment(env), stdio: ['ignore', 'pipe', 'pipe'] });
  const stop = async (): Promise<void> => {
    await stopChild(child);
  };
  try {
    const watched = { name: 'the ClickHouse engine', child, lastOutput: keepLastOutput(child) };
    await waitUntilReady(watched, () => pingClickHouse(port), START_MS_MAX);
  } catch (error) {
    await stop();
    throw error;
  }
  return { url: `http://127.0.0.1:${port}`, port, pid: child.pid ?? 0, child, stop, user, password };
}

/** True when the engine on this port answers. */
export async function pingClickHouse(port: number): Promise<boolean> {
  try {
    const answer = await fetch(`http://127.0.0.1:${port}/ping`, { signal: AbortSignal.timeout(PING_MS_MAX) });
    return answer.ok;
  } catch {
    return false;
  }
}
