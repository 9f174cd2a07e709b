import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { inheritEnvironment } from '@logpond/runtime/env';
import { findFreePort, keepLastOutput, spawnTied, stopChild, waitUntilReady } from './store-process.ts';
import type { Command, StoreProcess } from './store-process.ts';

export type RedisOptions = {
  dataDir: string;
  /** On loopback; absent or 0 takes a free one. */
  port?: number;
  /** Absent: a random one. */
  password?: string;
  /** Default 2 GiB. It is a fuse: nothing is ever evicted. */
  maxmemoryBytes?: number;
  /** Default: the redis-server found on PATH. */
  program?: string;
  /** Further lines of its configuration; they win over those written here. */
  extraConfig?: readonly string[];
};

const MAXMEMORY_BYTES = 2 * 1024 ** 3;
const START_MS_MAX = 30_000;
const PING_MS_MAX = 2_000;

/**
 * redis.conf with the settings that carry the promise (pipeline.md §8). A file, because a password on a command
 * line can be read by everyone on the machine.
 */
function renderRedisConfig(options: {
  dataDir: string;
  port: number;
  password: string;
  maxmemoryBytes: number;
  extraConfig?: readonly string[];
}): string {
  return `bind 127.0.0.1
port ${options.port}
requirepass ${options.password}
dir ${JSON.stringify(options.dataDir)}
daemonize no
appendonly yes
appendfsync always
no-appendfsync-on-rewrite no
auto-aof-rewrite-min-size 1gb
aof-load-truncated yes
save ""
maxmemory ${options.maxmemoryBytes}
maxmemory-policy noeviction
hz 1
dynamic-hz yes
tcp-backlog 511
loglevel notice
logfile ""
${(options.extraConfig ?? []).map((line) => `${line}\n`).join('')}`;
}

/** Writes `<dataDir>/redis.conf` and returns the command that runs it. */
export async function prepareRedis(
  options: RedisOptions & { port: number; password: string },
): Promise<Command> {
  if (!/^[\w-]+$/.test(options.password))
    throw new Error('a Redis password may hold letters, digits, _ and - only');
  await mkdir(options.dataDir, { recursive: true, mode: 0o700 });
  const file = join(options.dataDir, 'redis.conf');
  const config = renderRedisConfig({ ...options, maxmemoryBytes: options.maxmemoryBytes ?? MAXMEMORY_BYTES });
  await writeFile(file, config, { mode: 0o600 });
  return { command: options.program ?? 'redis-server', args: [file] };
}

/** Starts redis-server on loopback and waits until it answers PING, at most 30 s (it loads its file first). */
export async function spawnRedis(options: RedisOptions): Promise<StoreProcess> {
  const port = options.port || (await findFreePort());
  const password = options.password ?? randomBytes(24).toString('base64url');
  const command = await prepareRedis({ ...options, port, password });
  const child = spawnTied(command, { env: inheritEnvironment({}), stdio: ['ignore', 'pipe', 'pipe'] });
  const stop = async (): Promise<void> => {
    await stopChild(child);
  };
  try {
    const watched = { name: 'redis-server', child, lastOutput: keepLastOutput(child) };
    await waitUntilReady(watched, () => pingRedis(port, password), START_MS_MAX);
  } catch (error) {
    await stop();
    throw error;
  }
  return { url: `redis://:${password}@127.0.0.1:${port}`, port, pid: child.pid ?? 0, child, stop };
}

/** True when the server on this port answers PONG; false while it cannot be reached or loads its file. */
export async function pingRedis(port: number, password: string): Promise<boolean> {
  const socket = connect({ port, host: '127.0.0.1' });
  socket.setTimeout(PING_MS_MAX, () => socket.destroy());
  try {
    await once(socket, 'connect');
    socket.write(`AUTH ${password}\r\nPING\r\n`);
    let answer = '';
    for await (const part of socket.setEncoding('utf8') as AsyncIterable<string>) {
      answer += part;
      if (answer.split('\r\n').length > 2) break;
    }
    return answer.includes('+PONG');
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
