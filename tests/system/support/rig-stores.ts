import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, openSync, closeSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inheritEnvironment } from '@logpond/runtime/env';
import { pingClickHouse, prepareClickHouse } from '@logpond/standalone/clickhouse-process';
import { spawnRedis } from '@logpond/standalone/redis';
import {
  findFreePort,
  keepLastOutput,
  spawnTied,
  stopChild,
  waitUntilReady,
} from '@logpond/standalone/store-process';
import { compileShim } from './native-shim.ts';
import { losePower } from './power-loss.ts';
import type { PowerLoss } from './power-loss.ts';

const CLICKHOUSE_START_MS_MAX = 60_000;

export type StoreName = 'redis' | 'clickhouse';

export type RigStoresOptions = {
  /** Run under the shim that records syncs; needed for `losePower`. */
  powerLoss?: readonly StoreName[];
  /** Run Redis under the shim that moves its clock; needed for `setRedisClock`. */
  hasRedisClock?: boolean;
  /** Default 2 GiB. */
  maxmemoryBytes?: number;
};

type Running = { pid: number; stop: () => Promise<void>; kill: () => Promise<void> };

/**
 * A real redis-server and a real ClickHouse engine in a directory of their own, each of which can be killed, lose
 * its power and be started again on the same port and files. Disposing stops both and removes the directory.
 */
export class RigStores implements AsyncDisposable {
  readonly dataDir: string;
  readonly redisPort: number;
  readonly redisUrl: string;
  readonly clickhousePort: number;
  readonly clickhouseUrl: string;
  readonly clickhouseUser = 'default';
  readonly clickhousePassword = randomBytes(24).toString('base64url');
  readonly #redisPassword = randomBytes(24).toString('base64url');
  readonly #options: RigStoresOptions;
  #redisProgram: string | undefined;
  #redis: Running | undefined;
  #clickhouse: Running | undefined;

  private constructor(
    dataDir: string,
    ports: { redis: number; clickhouse: number },
    options: RigStoresOptions,
  ) {
    this.dataDir = dataDir;
    this.#options = options;
    this.redisPort = ports.redis;
    this.clickhousePort = ports.clickhouse;
    this.redisUrl = `redis://:${this.#redisPassword}@127.0.0.1:${ports.redis}`;
    this.clickhouseUrl = `http://127.0.0.1:${ports.clickhouse}`;
  }

  static async start(options: RigStoresOptions = {}): Promise<RigStores> {
    const dataDir = await mkdtemp(join(tmpdir(), 'logpond-rig-'));
    const ports = { redis: await findFreePort(), clickhouse: await findFreePort() };
    const stores = new RigStores(dataDir, ports, options);
    try {
      stores.#redisProgram = await stores.#prepareProgram();
      await Promise.all([stores.startRedis(), stores.startClickHouse()]);
      return stores;
    } catch (error) {
      await stores[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Starts redis-server and waits until it has loaded its file. */
  async startRedis(): Promise<void> {
    const { maxmemoryBytes } = this.#options;
    const process = await spawnRedis({
      dataDir: this.#directory('redis'),
      port: this.redisPort,
      password: this.#redisPassword,
      ...(maxmemoryBytes !== undefined && { maxmemoryBytes }),
      ...(this.#redisProgram !== undefined && { program: this.#redisProgram }),
    });
    this.#redis = { pid: process.pid, stop: process.stop, kill: async () => killChild(process.child) };
  }

  /** Starts the ClickHouse engine and waits until it answers. */
  async startClickHouse(): Promise<void> {
    const { env, ...command } = prepareClickHouse({
      dataDir: this.#directory('clickhouse'),
      port: this.clickhousePort,
      user: this.clickhouseUser,
      password: this.clickhousePassword,
    });
    const shim = this.#options.powerLoss?.includes('clickhouse')
      ? { LD_PRELOAD: await compileShim('power-loss-shim'), SYNC_LOG: this.#syncLog('clickhouse') }
      : {};
    const child = spawnTied(command, {
      env: inheritEnvironment({ ...env, ...shim }),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const stop = async (): Promise<void> => void (await stopChild(child));
    this.#clickhouse = { pid: child.pid ?? 0, stop, kill: async () => killChild(child) };
    const watched = { name: 'the ClickHouse engine', child, lastOutput: keepLastOutput(child) };
    await waitUntilReady(watched, () => pingClickHouse(this.clickhousePort), CLICKHOUSE_START_MS_MAX);
  }

  /** The process id of a store; it changes with every start. */
  pidOf(store: StoreName): number {
    return (store === 'redis' ? this.#redis : this.#clickhouse)?.pid ?? 0;
  }

  /** SIGKILL, and waits until it is gone. */
  async kill(store: StoreName): Promise<void> {
    await (store === 'redis' ? this.#redis : this.#clickhouse)?.kill();
  }

  /** SIGKILL, and takes away what was not synced to disk. Start it again afterwards. */
  async losePower(store: StoreName): Promise<PowerLoss> {
    if (this.#options.powerLoss?.includes(store) !== true)
      throw new Error(`expected ${store} among the rig's option powerLoss`);
    await this.kill(store);
    return losePower(this.#directory(store), this.#syncLog(store));
  }

  /** Moves the wall clock of redis-server, which goes on running, to `shiftMs` from ours. */
  setRedisClock(shiftMs: number): void {
    if (this.#options.hasRedisClock !== true) throw new Error("expected the rig's option hasRedisClock");
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(BigInt(shiftMs) * 1_000_000n);
    // In place: the shim has this very file in its memory.
    const file = openSync(this.#clockFile, 'r+');
    writeSync(file, bytes, 0, 8, 0);
    closeSync(file);
  }

  get #clockFile(): string {
    return join(this.dataDir, 'redis-clock');
  }

  #directory(store: StoreName): string {
    return join(this.dataDir, store);
  }

  #syncLog(store: StoreName): string {
    return join(this.dataDir, `${store}-syncs`);
  }

  /** A program that runs redis-server under the shims asked for; undefined when there are none. */
  async #prepareProgram(): Promise<string | undefined> {
    const isRecorded = this.#options.powerLoss?.includes('redis') === true;
    const isShifted = this.#options.hasRedisClock === true;
    if (!isRecorded && !isShifted) return undefined;
    const libraries = [
      ...(isRecorded ? [await compileShim('power-loss-shim')] : []),
      ...(isShifted ? [await compileShim('clock-shim')] : []),
    ];
    writeFileSync(this.#clockFile, Buffer.alloc(8));
    const program = join(this.dataDir, 'redis-server');
    const variables = [
      `LD_PRELOAD='${libraries.join(':')}'`,
      ...(isRecorded ? [`SYNC_LOG='${this.#syncLog('redis')}'`] : []),
      ...(isShifted ? [`CLOCK_SHIFT='${this.#clockFile}'`] : []),
    ];
    writeFileSync(program, `#!/bin/sh\nexec env ${variables.join(' ')} redis-server "$@"\n`);
    chmodSync(program, 0o700);
    return program;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.#redis?.stop(), this.#clickhouse?.stop()]);
    rmSync(this.dataDir, { recursive: true, force: true });
  }
}

async function killChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}
