import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { inheritEnvironment } from '@logpond/runtime/env';
import { pingRedis, spawnRedis } from '@logpond/standalone/redis';
import {
  findFreePort,
  keepLastOutput,
  spawnTied,
  stopChild,
  waitUntilReady,
} from '@logpond/standalone/store-process';
import type { StoreProcess } from '@logpond/standalone/store-process';
import { waitFor } from '../../support/wait.ts';

const START_MS_MAX = 20_000;
/** An election that was split is held again after 4 s. */
const FAILOVER_MS_MAX = 30_000;
const SLOTS = 16_384;
const SENTINEL_LOG_CHARS = 20_000;
const SENTINEL_NAME = 'pond';

/** One redis-server: its files and port stay through kills. `control` looks at it directly. */
export type RedisServer = {
  port: number;
  dataDir: string;
  config: readonly string[];
  process: StoreProcess;
  control: Redis;
};

/** Some redis-servers of one password, which can be killed and started again. */
export class RedisServers implements AsyncDisposable {
  readonly password = randomBytes(16).toString('hex');
  readonly dataDir: string;
  readonly #servers: RedisServer[] = [];

  private constructor(dataDir: string) {
    this.dataDir = dataDir;
  }

  static async open(): Promise<RedisServers> {
    return new RedisServers(await mkdtemp(join(tmpdir(), 'logpond-topology-')));
  }

  get all(): readonly RedisServer[] {
    return this.#servers;
  }

  /** Starts a further server. @param config lines of redis.conf over those of the product. */
  async add(config: readonly string[], port?: number): Promise<RedisServer> {
    const own = port ?? (await findFreePort());
    const dataDir = join(this.dataDir, String(own));
    // Replication and the cluster's bus live on the server's timer.
    const lines = ['hz 10', `masterauth ${this.password}`, 'repl-diskless-sync-delay 0', ...config];
    const process = await spawnRedis({ dataDir, port: own, password: this.password, extraConfig: lines });
    const control = new Redis(process.url, { retryStrategy: () => 50, maxRetriesPerRequest: null });
    control.on('error', () => {});
    const server = { port: own, dataDir, config: lines, process, control };
    this.#servers.push(server);
    return server;
  }

  /** SIGKILL, and waits until it is gone. */
  async kill({ process: { child } }: RedisServer): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }

  /** Starts a killed server on its port and files again, with further lines of configuration. */
  async restart(server: RedisServer, config: readonly string[] = []): Promise<void> {
    const { port, dataDir } = server;
    const extraConfig = [...server.config, ...config];
    server.process = await spawnRedis({ dataDir, port, password: this.password, extraConfig });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { control } of this.#servers) control.disconnect();
    await Promise.all(this.#servers.map(async (server) => this.kill(server)));
    await rm(this.dataDir, { recursive: true, force: true });
  }
}

type Sentinel = {
  port: number;
  control: Redis;
  /** The end of its log: whom it took for dead, and whom it promoted. */
  output: () => string;
  stop: () => Promise<unknown>;
};

/** A primary, two replicas and three Sentinels that watch them. */
export class SentinelTopology implements AsyncDisposable {
  readonly servers: RedisServers;
  readonly env: Readonly<Record<string, string>>;
  readonly sentinels: readonly Sentinel[];
  readonly sentinelName = SENTINEL_NAME;

  private constructor(servers: RedisServers, sentinels: readonly Sentinel[]) {
    this.servers = servers;
    this.sentinels = sentinels;
    const urls = sentinels.map(({ port }) => `redis://:${servers.password}@127.0.0.1:${port}`);
    this.env = { REDIS_MODE: 'sentinel', REDIS_URL: urls.join(','), REDIS_SENTINEL_NAME: SENTINEL_NAME };
  }

  static async open(): Promise<SentinelTopology> {
    const servers = await RedisServers.open();
    const primary = await servers.add([]);
    const follow = `replicaof 127.0.0.1 ${primary.port}`;
    await Promise.all([servers.add([follow]), servers.add([follow])]);
    await waitFor('two replicas', async () => countReplicas(primary, 2));
    const starts = [0, 1, 2].map(async () => startSentinel(servers, primary.port));
    const topology = new SentinelTopology(servers, await Promise.all(starts));
    await waitFor('the Sentinels to know each other', async () => topology.#isComplete());
    return topology;
  }

  async #isComplete(): Promise<boolean> {
    const views = this.sentinels.map(async ({ control }) => {
      const text = JSON.stringify(await control.call('SENTINEL', 'MASTER', SENTINEL_NAME));
      return /num-slaves"[,:]"2"/.test(text) && /num-other-sentinels"[,:]"2"/.test(text);
    });
    return (await Promise.all(views)).every(Boolean);
  }

  /** The server that is a primary and has taken at least `replicas` replicas in. */
  async waitForPrimary(replicas: number, other?: RedisServer): Promise<RedisServer> {
    const find = async (): Promise<RedisServer | undefined> => {
      for (const server of this.servers.all) {
        if (server === other || server.process.child.signalCode !== null) continue;
        if ((await readRole(server)) === 'master' && (await countReplicas(server, replicas))) return server;
      }
      return undefined;
    };
    return waitFor('a primary', find, FAILOVER_MS_MAX);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { control } of this.sentinels) control.disconnect();
    await Promise.all(this.sentinels.map(async ({ stop }) => stop()));
    await this.servers[Symbol.asyncDispose]();
  }
}

async function startSentinel({ dataDir, password }: RedisServers, primaryPort: number): Promise<Sentinel> {
  const port = await findFreePort();
  const file = join(dataDir, `sentinel-${port}.conf`);
  const lines = [
    `port ${port}`,
    'bind 127.0.0.1',
    `dir ${dataDir}`,
    `sentinel monitor ${SENTINEL_NAME} 127.0.0.1 ${primaryPort} 2`,
    `sentinel auth-pass ${SENTINEL_NAME} ${password}`,
    `sentinel down-after-milliseconds ${SENTINEL_NAME} 1000`,
    `sentinel failover-timeout ${SENTINEL_NAME} 2000`,
    `sentinel parallel-syncs ${SENTINEL_NAME} 2`,
  ];
  await writeFile(file, `${lines.join('\n')}\n`);
  const command = { command: 'redis-server', args: [file, '--sentinel'] };
  const child = spawnTied(command, { env: inheritEnvironment({}), stdio: ['ignore', 'pipe', 'pipe'] });
  const watched = { name: 'sentinel', child, lastOutput: keepLastOutput(child) };
  await waitUntilReady(watched, async () => pingRedis(port, 'none'), START_MS_MAX);
  const control = new Redis({ port, host: '127.0.0.1', retryStrategy: () => 50, enableReadyCheck: false });
  control.on('error', () => {});
  return { port, control, output: keepLog(child), stop: async () => stopChild(child, 5_000) };
}

/** More than the last words of a store: an election that went wrong takes some fifty lines. */
function keepLog(child: ChildProcess): () => string {
  let text = '';
  child.stdout?.on('data', (part: string) => {
    text = (text + part).slice(-SENTINEL_LOG_CHARS);
  });
  return () => text;
}

/** Three primaries with equal slot ranges and a replica each. */
export class ClusterTopology implements AsyncDisposable {
  readonly servers: RedisServers;
  readonly env: Readonly<Record<string, string>>;

  private constructor(servers: RedisServers) {
    this.servers = servers;
    const urls = servers.all.map(({ port }) => `redis://:${servers.password}@127.0.0.1:${port}`);
    this.env = { REDIS_MODE: 'cluster', REDIS_URL: urls.slice(0, 3).join(',') };
  }

  static async open(): Promise<ClusterTopology> {
    const servers = await RedisServers.open();
    const config = [
      'cluster-enabled yes',
      'cluster-node-timeout 1500',
      'cluster-require-full-coverage no',
      'cluster-replica-validity-factor 0',
    ];
    await Promise.all(Array.from({ length: 6 }, async () => servers.add(config)));
    await formCluster(servers.all);
    return new ClusterTopology(servers);
  }

  /** The primary that serves a key. */
  async findPrimaryOf(key: string): Promise<RedisServer> {
    const alive = this.servers.all.filter(({ process }) => process.child.signalCode === null);
    const [first] = alive;
    if (first === undefined) throw new Error('expected a server that runs');
    const slot = Number(await first.control.cluster('KEYSLOT', key));
    const slots = await first.control.cluster('SLOTS');
    const port = slots.find(([from, to]) => slot >= from && slot <= to)?.[2]?.[1];
    const server = this.servers.all.find((candidate) => candidate.port === port);
    if (server === undefined) throw new Error(`expected a server for slot ${slot}`);
    return server;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.servers[Symbol.asyncDispose]();
  }
}

async function formCluster(servers: readonly RedisServer[]): Promise<void> {
  const primaries = servers.slice(0, 3);
  for (const [index, { control }] of primaries.entries()) {
    const from = Math.floor((index * SLOTS) / 3);
    await control.call('CLUSTER', 'ADDSLOTSRANGE', from, Math.floor(((index + 1) * SLOTS) / 3) - 1);
  }
  const [first] = servers;
  for (const { port } of servers.slice(1)) await first?.control.cluster('MEET', '127.0.0.1', port);
  await waitFor('the nodes to know each other', async () => {
    const lists = servers.map(async ({ control }) => String(await control.cluster('NODES')));
    return (await Promise.all(lists)).every((list) => list.trim().split('\n').length === servers.length);
  });
  for (const [index, { control }] of servers.slice(3).entries()) {
    const id = String(await primaries[index]?.control.cluster('MYID'));
    await waitFor('a replica to be taken', async () => (await control.cluster('REPLICATE', id)) === 'OK');
  }
  await waitFor('the cluster to stand', async () => {
    const states = servers.map(async ({ control }) => String(await control.cluster('INFO')));
    const replicated = primaries.map(async (server) => countReplicas(server, 1));
    const isOk = (await Promise.all(states)).every((text) => text.includes('cluster_state:ok'));
    return isOk && (await Promise.all(replicated)).every(Boolean);
  });
}

/** Whether at least so many replicas follow the server and are in step. */
export async function countReplicas({ control }: RedisServer, wanted: number): Promise<boolean> {
  const text = await control.info('replication');
  return [...text.matchAll(/^slave\d+:.*state=online/gm)].length >= wanted;
}

async function readRole({ control }: RedisServer): Promise<string> {
  return /role:(\w+)/.exec(await control.info('replication'))?.[1] ?? '';
}
