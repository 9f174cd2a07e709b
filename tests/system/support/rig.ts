import { join } from 'node:path';
import { createClient } from '@clickhouse/client';
import type { ClickHouseClient } from '@clickhouse/client';
import { Redis } from 'ioredis';
import type { Consumer } from '@logpond/db/shard-map';
import { findFreePort } from '@logpond/standalone/store-process';
import { startApp } from '../../support/app-process.ts';
import type { AppProcess } from '../../support/app-process.ts';
import { waitFor } from '../../support/wait.ts';
import type { ChaosProxy } from './chaos-proxy.ts';
import type { JudgedLetter } from './judge.ts';
import type { PowerLoss } from './power-loss.ts';
import { openProxies } from './rig-proxies.ts';
import type { RigProxies } from './rig-proxies.ts';
import { expireLeases } from './rig-leases.ts';
import { KEY_PREFIX, listLetters, readAccounts, readRunId, readShardState } from './rig-state.ts';
import type { ShardAccount, ShardState } from './rig-state.ts';
import { RigStores } from './rig-stores.ts';
import type { RigStoresOptions, StoreName } from './rig-stores.ts';
import { createTenants } from './rig-tenants.ts';

export type { ShardAccount, ShardState } from './rig-state.ts';

const API_START_MS_MAX = 60_000;
const DEFAULT_BUDGET_BYTES = 1_073_741_824;

/** A project of its own with a key, on a known shard. */
export type Tenant = { projectId: string; apiKey: string; shard: number };

export type ApiProcess = AppProcess & { url: string; port: number };

export type RigOptions = RigStoresOptions & {
  shards: number;
  /** Settings of every process of the product. Without any there is no canary. */
  env?: Readonly<Record<string, string>>;
  /** Puts a chaos proxy between the processes and each store. */
  isProxied?: boolean;
};

type Env = Readonly<Record<string, string>>;

/**
 * An installation for tests that break it: real stores that can be killed and started again on the same ports
 * and directories, and the product's processes beside them. Disposing ends all of it.
 */
export class Rig implements AsyncDisposable {
  readonly shards: number;
  /** What points a process at the stores, not through the proxies. */
  readonly env: Env;
  /** Looks behind the product's back. */
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly #stores: RigStores;
  readonly #proxies: RigProxies | undefined;
  readonly #apps = new Set<AppProcess>();

  private constructor(stores: RigStores, options: RigOptions, proxies: RigProxies | undefined) {
    this.#stores = stores;
    this.#proxies = proxies;
    this.shards = options.shards;
    this.env = {
      REDIS_URL: stores.redisUrl,
      CLICKHOUSE_URL: stores.clickhouseUrl,
      CLICKHOUSE_USER: stores.clickhouseUser,
      CLICKHOUSE_PASSWORD: stores.clickhousePassword,
      SHARDS: String(options.shards),
      CANARY_INTERVAL_MS: '0',
      ...options.env,
    };
    this.redis = new Redis(stores.redisUrl, { retryStrategy: () => 50, maxRetriesPerRequest: null });
    this.redis.on('error', () => {});
    this.clickhouse = createClient({
      url: stores.clickhouseUrl,
      username: stores.clickhouseUser,
      password: stores.clickhousePassword,
      request_timeout: 60_000,
      clickhouse_settings: { log_comment: '#internal' },
    });
  }

  static async open(options: RigOptions): Promise<Rig> {
    const stores = await RigStores.start(options);
    const proxies = options.isProxied === true ? await openProxies(stores) : undefined;
    return new Rig(stores, options, proxies);
  }

  get proxies(): RigProxies {
    if (this.#proxies === undefined) throw new Error("expected the rig's option isProxied");
    return this.#proxies;
  }

  /** Starts an ingest worker; it takes its shards once the stores are prepared. */
  startWorker(env: Env = {}): AppProcess {
    return this.#startConsumer('ingest-worker', env);
  }

  /** Starts an alert worker. */
  startAlertWorker(env: Env = {}): AppProcess {
    return this.#startConsumer('alert-worker', env);
  }

  #startConsumer(name: string, env: Env): AppProcess {
    const { workerToRedis, workerToClickHouse } = this.#proxies ?? {};
    const worker = startApp(name, { ...this.#envThrough(workerToRedis, workerToClickHouse), ...env });
    this.#apps.add(worker);
    return worker;
  }

  /** Starts an API and waits until it is ready, which needs a worker to have prepared the stores. */
  async startApi(env: Env = {}, port?: number): Promise<ApiProcess> {
    const ownPort = port ?? (await findFreePort());
    const tokenFile = join(this.#stores.dataDir, `setup-token-${ownPort}`);
    const { apiToRedis, apiToClickHouse } = this.#proxies ?? {};
    const own = { PORT: String(ownPort), SETUP_TOKEN_FILE: tokenFile };
    const app = startApp('api', { ...this.#envThrough(apiToRedis, apiToClickHouse), ...own, ...env });
    this.#apps.add(app);
    const api = Object.assign(app, { url: `http://127.0.0.1:${ownPort}`, port: ownPort });
    await waitFor(
      'the API to be ready',
      async () => {
        if (app.child.exitCode !== null) throw new Error(`the API ended: ${app.output()}`);
        const answer = await fetch(`${api.url}/health/ready`, { signal: AbortSignal.timeout(2_000) });
        await answer.body?.cancel();
        return answer.status === 200;
      },
      API_START_MS_MAX,
    ).catch((error: unknown) => {
      throw new Error(`the API did not become ready; it wrote: ${app.output().slice(-3_000)}`, {
        cause: error,
      });
    });
    return api;
  }

  #envThrough(redis: ChaosProxy | undefined, clickhouse: ChaosProxy | undefined): Env {
    if (redis === undefined || clickhouse === undefined) return this.env;
    return {
      ...this.env,
      REDIS_URL: redis.redirect(this.#stores.redisUrl),
      CLICKHOUSE_URL: clickhouse.redirect(this.#stores.clickhouseUrl),
    };
  }

  /** Makes `perShard` projects on each shard, each with a key for everything; those of shard 0 come first. */
  async createTenants(perShard: number, options: { retentionDays?: number } = {}): Promise<Tenant[]> {
    const settings = {
      REDIS_URL: this.#stores.redisUrl,
      KEY_PREFIX,
      SHARDS: this.shards,
      REDIS_BUDGET_BYTES: Number(this.env['REDIS_BUDGET_BYTES'] ?? DEFAULT_BUDGET_BYTES),
    };
    return createTenants(settings, perShard, options);
  }

  /** SIGKILL to one process of the product; the rig forgets it. */
  async killApp(app: AppProcess): Promise<void> {
    this.#apps.delete(app);
    await app.kill();
  }

  /** Stops a process where it stands, as a long pause of its machine does. */
  pause(app: AppProcess): void {
    app.child.kill('SIGSTOP');
  }

  resume(app: AppProcess): void {
    app.child.kill('SIGCONT');
  }

  /** Kills every worker that still runs and frees their shards: each test begins without one. */
  async killWorkers(): Promise<void> {
    const victims = [...this.#apps].filter((app) => !('port' in app));
    await Promise.all(victims.map(async (app) => this.killApp(app)));
    await this.expireLeases('ingest');
    await this.expireLeases('alert');
  }

  /** SIGKILL to redis-server, and waits until it is gone. */
  async killRedis(): Promise<void> {
    await this.#stores.kill('redis');
  }

  /** Starts redis-server again on the same port and directory; it loads its file first. */
  async startRedis(): Promise<void> {
    await this.#stores.startRedis();
  }

  /** SIGKILL to the ClickHouse engine, and waits until it is gone. */
  async killClickHouse(): Promise<void> {
    await this.#stores.kill('clickhouse');
  }

  /** Starts the engine again on the same port and directory. */
  async startClickHouse(): Promise<void> {
    await this.#stores.startClickHouse();
  }

  /** SIGKILL to a store, then takes away what it had not synced. Needs the option `powerLoss`; start it afterwards. */
  async losePower(store: StoreName): Promise<PowerLoss> {
    return this.#stores.losePower(store);
  }

  /** Moves the clock of redis-server to `shiftMs` from ours. Needs the option `hasRedisClock`. */
  setRedisClock(shiftMs: number): void {
    this.#stores.setRedisClock(shiftMs);
  }

  /** The process id of a store; another after each start. */
  pidOf(store: StoreName): number {
    return this.#stores.pidOf(store);
  }

  async readShards(): Promise<ShardState[]> {
    const shards = Array.from({ length: this.shards }, (_, shard) => shard);
    return Promise.all(shards.map(async (shard) => readShardState(this.redis, shard)));
  }

  /** One shard of `readShards`. */
  async readShard(shard: number): Promise<ShardState> {
    return readShardState(this.redis, shard);
  }

  /** Waits until every shard was compared with ClickHouse since Redis started, so that it admits entries. */
  async waitUntilAdmitting(timeoutMs = 30_000): Promise<void> {
    await this.#waitForShards('all shards to admit', () => true, timeoutMs);
  }

  /** Waits until every admitted entry is committed and no plan is open. */
  async waitForRest(timeoutMs = 60_000): Promise<void> {
    const isDrained = ({ next, done, plan }: ShardState): boolean => next === done && plan === undefined;
    await this.#waitForShards('all shards to be drained', isDrained, timeoutMs);
  }

  async #waitForShards(
    what: string,
    holds: (state: ShardState) => boolean,
    timeoutMs: number,
  ): Promise<void> {
    await waitFor(
      what,
      async () => {
        const own = await readRunId(this.redis);
        const states = await this.readShards();
        return states.every((state) => state.run === own && !state.isDraining && holds(state));
      },
      timeoutMs,
    ).catch(async (error: unknown) => {
      const outputs = [...this.#apps].map((app) => app.output().slice(-1_500)).join('\n---\n');
      throw new Error(`not at rest: ${JSON.stringify(await this.readShards())}\n${outputs}`, {
        cause: error,
      });
    });
  }

  /** Lets all leases and signs of life of a consumer run out now: the same as waiting for 3 s after a kill. */
  async expireLeases(consumer: Consumer = 'ingest'): Promise<void> {
    await expireLeases(this.redis, this.shards, consumer);
  }

  /** How many shards each worker holds, in no order. */
  async countLeases(): Promise<number[]> {
    const counts = new Map<string, number>();
    for (const { lease } of await this.readShards()) {
      const worker = lease?.split(':')[0];
      if (worker !== undefined) counts.set(worker, (counts.get(worker) ?? 0) + 1);
    }
    return [...counts.values()];
  }

  /** Counts both sides; holds through kills and restarts whenever no insert is under way. */
  async readAccounts(): Promise<ShardAccount[]> {
    return readAccounts(this.redis, this.selectRows, await this.readShards());
  }

  /** A project's dead letters, read past the product's own code. */
  readonly listLetters = async (projectId: string): Promise<JudgedLetter[]> =>
    listLetters(this.redis, this.shards, projectId);

  /** Asks ClickHouse directly, past the product's own code. */
  readonly selectRows = async <Row>(query: string, params: Record<string, unknown> = {}): Promise<Row[]> => {
    const answer = await this.clickhouse.query({
      query,
      query_params: params,
      format: 'JSONEachRow',
      clickhouse_settings: { output_format_json_quote_64bit_integers: 1 },
    });
    return answer.json<Row>();
  };

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#apps].map(async (app) => app.kill()));
    this.redis.disconnect();
    await this.clickhouse.close();
    await this.#stores[Symbol.asyncDispose]();
    const proxies = Object.values(this.#proxies ?? {});
    await Promise.all(proxies.map(async (proxy) => proxy[Symbol.asyncDispose]()));
  }
}
