import { once } from 'node:events';
import { join } from 'node:path';
import { createClient } from '@clickhouse/client';
import type { ClickHouseClient } from '@clickhouse/client';
import { Redis } from 'ioredis';
import { Accounts } from '@logpond/db/accounts';
import { ApiKeys } from '@logpond/db/api-keys';
import { connectRedis } from '@logpond/db/connect';
import { ControlStore } from '@logpond/db/control-store';
import { Organizations } from '@logpond/db/organizations';
import { Projects } from '@logpond/db/projects';
import { shardKeys, shardOf } from '@logpond/db/shard-map';
import { spawnClickHouse } from '@logpond/standalone/clickhouse-process';
import { spawnRedis } from '@logpond/standalone/redis';
import { findFreePort } from '@logpond/standalone/store-process';
import type { StoreProcess } from '@logpond/standalone/store-process';
import { startApp } from '../../support/app-process.ts';
import type { AppProcess } from '../../support/app-process.ts';
import { startStores } from '../../support/stores.ts';
import type { TestStores } from '../../support/stores.ts';
import { waitFor } from '../../support/wait.ts';

const KEY_PREFIX = 'lp';
const TENANT_TRIES_MAX = 500;

/** A project of its own with a key, on a known shard. */
export type Tenant = { projectId: string; apiKey: string; shard: number };

export type ApiProcess = AppProcess & { url: string; port: number };

/** One shard as Redis has it. `done` and `next` are offsets: `next - done` entries are not stored yet. */
export type ShardState = {
  shard: number;
  epoch: number;
  next: number;
  done: number;
  plan: string | undefined;
  fence: string;
  lease: string | undefined;
};

/** One shard's accounts: at rest `received` is `stored` plus `pending`. */
export type ShardAccount = { shard: number; received: number; stored: number; pending: number };

/**
 * An installation for tests that break it: real stores that can be killed and started again on the same ports
 * and directories, and the product's processes beside them. Disposing ends all of it.
 */
export class Rig implements AsyncDisposable {
  readonly shards: number;
  readonly env: Readonly<Record<string, string>>;
  /** Looks behind the product's back. */
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly #stores: TestStores;
  readonly #apps = new Set<AppProcess>();
  #redisProcess: StoreProcess;
  #clickhouseProcess: StoreProcess;
  #userId: string | undefined;

  private constructor(stores: TestStores, shards: number) {
    this.#stores = stores;
    this.#redisProcess = stores.redis;
    this.#clickhouseProcess = stores.clickhouse;
    this.shards = shards;
    this.env = stores.env;
    this.redis = new Redis(stores.redis.url, { retryStrategy: () => 50, maxRetriesPerRequest: null });
    this.redis.on('error', () => {});
    this.clickhouse = createClient({
      url: stores.clickhouse.url,
      username: stores.clickhouse.user,
      password: stores.clickhouse.password,
      request_timeout: 30_000,
      clickhouse_settings: { log_comment: '#internal' },
    });
  }

  static async open(options: { shards: number }): Promise<Rig> {
    return new Rig(await startStores({ shards: options.shards }), options.shards);
  }

  /** Starts an ingest worker; it takes its shards once the stores are prepared. */
  startWorker(env: Readonly<Record<string, string>> = {}): AppProcess {
    const worker = startApp('ingest-worker', { ...this.env, ...env });
    this.#apps.add(worker);
    return worker;
  }

  /** Starts an API and waits until it is ready, which needs a worker to have prepared the stores. */
  async startApi(env: Readonly<Record<string, string>> = {}, port?: number): Promise<ApiProcess> {
    const ownPort = port ?? (await findFreePort());
    const tokenFile = join(this.#stores.dataDir, `setup-token-${ownPort}`);
    const app = startApp('api', { ...this.env, PORT: String(ownPort), SETUP_TOKEN_FILE: tokenFile, ...env });
    this.#apps.add(app);
    const api = Object.assign(app, { url: `http://127.0.0.1:${ownPort}`, port: ownPort });
    await waitFor(
      'the API to be ready',
      async () => {
        if (app.child.exitCode !== null) throw new Error(`the API ended: ${app.output()}`);
        return (
          (await fetch(`${api.url}/health/ready`, { signal: AbortSignal.timeout(2_000) })).status === 200
        );
      },
      40_000,
    ).catch((error: unknown) => {
      throw new Error(`the API did not become ready; it wrote: ${app.output().slice(-3_000)}`, {
        cause: error,
      });
    });
    return api;
  }

  /** Makes `perShard` projects on each shard, each with a key for everything. */
  async createTenants(perShard: number): Promise<Tenant[]> {
    await using redis = await connectRedis({
      REDIS_URL: this.#redisProcess.url,
      KEY_PREFIX,
      SHARDS: this.shards,
      REDIS_BUDGET_BYTES: 1_073_741_824,
    });
    const control = new ControlStore(redis);
    const actor = { kind: 'system' } as const;
    this.#userId ??= (await createUser(control)).id;
    const projects = new Projects(control);
    await using apiKeys = new ApiKeys(control);
    const name = `Fault tests ${crypto.randomUUID()}`;
    const organization = await new Organizations(control).create(actor, this.#userId, { name });
    const tenants: Tenant[] = [];
    for (let tries = 0; tenants.length < perShard * this.shards && tries < TENANT_TRIES_MAX; tries += 1) {
      const project = await projects.create(actor, { organizationId: organization.id, name: `p${tries}` });
      const shard = shardOf(project.id, this.shards);
      if (tenants.filter((tenant) => tenant.shard === shard).length >= perShard) continue;
      const { apiKey } = await apiKeys.create(actor, project.id, { name: 'oracle' });
      tenants.push({ projectId: project.id, apiKey, shard });
    }
    return tenants;
  }

  /** Kills every worker that still runs and frees their shards: each test begins without one. */
  async killWorkers(): Promise<void> {
    const victims = [...this.#apps].filter((app) => !('port' in app));
    await Promise.all(victims.map(async (app) => app.kill()));
    for (const app of victims) this.#apps.delete(app);
    await this.expireLeases();
  }

  /** SIGKILL to redis-server, and waits until it is gone. */
  async killRedis(): Promise<void> {
    await killStore(this.#redisProcess);
  }

  /** Starts redis-server again on the same port and directory; it loads its file first. */
  async startRedis(): Promise<void> {
    const { url, port } = this.#redisProcess;
    const password = new URL(url).password;
    this.#redisProcess = await spawnRedis({ dataDir: join(this.#stores.dataDir, 'redis'), port, password });
  }

  /** SIGKILL to the ClickHouse engine, and waits until it is gone. */
  async killClickHouse(): Promise<void> {
    await killStore(this.#clickhouseProcess);
  }

  /** Starts the engine again on the same port and directory. */
  async startClickHouse(): Promise<void> {
    const { port } = this.#clickhouseProcess;
    const { user, password } = this.#stores.clickhouse;
    const dataDir = join(this.#stores.dataDir, 'clickhouse');
    this.#clickhouseProcess = await spawnClickHouse({ dataDir, port, user, password });
  }

  async readShards(): Promise<ShardState[]> {
    const shards = Array.from({ length: this.shards }, (_, shard) => shard);
    return Promise.all(
      shards.map(async (shard) => {
        const keys = shardKeys(KEY_PREFIX, shard);
        const fields = ['epoch', 'next', 'ingest:done', 'ingest:plan', 'ingest:fence'];
        const [epoch, next, done, plan, fence] = await this.redis.hmget(keys.state, ...fields);
        const lease = (await this.redis.get(keys.lease('ingest'))) ?? undefined;
        const counts = { epoch: Number(epoch ?? 0), next: Number(next ?? 1), done: Number(done ?? 1) };
        return { shard, ...counts, plan: plan ?? undefined, fence: fence ?? '0', lease };
      }),
    );
  }

  /** One shard of `readShards`. */
  async readShard(shard: number): Promise<ShardState> {
    const state = (await this.readShards())[shard];
    if (state === undefined) throw new RangeError(`expected a shard below ${this.shards}, got ${shard}`);
    return state;
  }

  /** Waits until every admitted entry is committed and no plan is open. */
  async waitForRest(timeoutMs = 60_000): Promise<void> {
    await waitFor(
      'all shards to be drained',
      async () => {
        const shards = await this.readShards();
        return shards.every(
          ({ epoch, next, done, plan }) => epoch > 0 && next === done && plan === undefined,
        );
      },
      timeoutMs,
    ).catch(async (error: unknown) => {
      const outputs = [...this.#apps].map((app) => app.output().slice(-1_500)).join('\n---\n');
      throw new Error(`not at rest: ${JSON.stringify(await this.readShards())}\n${outputs}`, {
        cause: error,
      });
    });
  }

  /** Lets all leases and signs of life run out now: the same as waiting for 3 s after a kill. */
  async expireLeases(): Promise<void> {
    for (let shard = 0; shard < this.shards; shard += 1) {
      await this.redis.del(shardKeys(KEY_PREFIX, shard).lease('ingest'));
    }
    await this.redis.del(`${KEY_PREFIX}:{cp}:workers:ingest`);
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
    const states = await this.readShards();
    const counts = await this.selectRows<{ shard: number; rows: string }>(
      'SELECT shard, count() AS rows FROM logs GROUP BY shard',
    );
    return states.map(({ shard, next, done }) => ({
      shard,
      received: next - 1,
      stored: Number(counts.find((count) => count.shard === shard)?.rows ?? 0),
      pending: next - done,
    }));
  }

  /** Asks ClickHouse directly, past the product's own code. */
  async selectRows<Row>(query: string, params: Record<string, unknown> = {}): Promise<Row[]> {
    const answer = await this.clickhouse.query({
      query,
      query_params: params,
      format: 'JSONEachRow',
      clickhouse_settings: { output_format_json_quote_64bit_integers: 1 },
    });
    return answer.json<Row>();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#apps].map(async (app) => app.kill()));
    this.redis.disconnect();
    await this.clickhouse.close();
    await Promise.all([this.#redisProcess.stop(), this.#clickhouseProcess.stop()]);
    await this.#stores[Symbol.asyncDispose]();
  }
}

async function createUser(control: ControlStore): Promise<{ id: string }> {
  const email = `oracle@${crypto.randomUUID()}.test`;
  const input = { email, password: 'correct horse battery staple', name: 'Oracle', isAdmin: true };
  return new Accounts(control).createUser({ kind: 'system' }, input);
}

async function killStore({ child }: StoreProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}
