import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient } from '@clickhouse/client';
import type { ClickHouseClient } from '@clickhouse/client';
import { RedisStore } from '@logpond/db/connect';
import type { RedisSettings } from '@logpond/db/connect';
import { shardKeys } from '@logpond/db/shard-map';
import { spawnClickHouse } from '@logpond/standalone/clickhouse-process';
import { findFreePort } from '@logpond/standalone/store-process';
import { startApp } from '../../support/app-process.ts';
import type { AppProcess } from '../../support/app-process.ts';
import { waitFor } from '../../support/wait.ts';
import { KEY_PREFIX } from './rig-state.ts';
import { createTenants } from './rig-tenants.ts';
import type { OwnedTenant } from './rig-tenants.ts';
import type { ApiProcess } from './rig.ts';

const BUDGET_BYTES = 268_435_456;
const START_MS_MAX = 60_000;

type Env = Readonly<Record<string, string>>;

export type TopologyRigOptions = {
  shards: number;
  waitReplicas: number;
  /** Where Redis is. */
  env: Env;
};

/** The product on a Redis that is more than one server. */
export class TopologyRig implements AsyncDisposable {
  readonly shards: number;
  readonly settings: RedisSettings;
  /** Looks behind the product's back. */
  readonly store: RedisStore;
  readonly #env: Env;
  readonly #dataDir: string;
  readonly #clickhouse: ClickHouseClient;
  readonly #engine: Awaited<ReturnType<typeof spawnClickHouse>>;
  readonly #apps: AppProcess[] = [];

  private constructor(
    dataDir: string,
    engine: Awaited<ReturnType<typeof spawnClickHouse>>,
    { shards, waitReplicas, env }: TopologyRigOptions,
  ) {
    this.shards = shards;
    this.#dataDir = dataDir;
    this.#engine = engine;
    this.#env = {
      ...env,
      REDIS_WAIT_REPLICAS: String(waitReplicas),
      REDIS_BUDGET_BYTES: String(BUDGET_BYTES),
      SHARDS: String(shards),
      CLICKHOUSE_URL: engine.url,
      CLICKHOUSE_USER: engine.user,
      CLICKHOUSE_PASSWORD: engine.password,
      CANARY_INTERVAL_MS: '0',
    };
    this.settings = {
      REDIS_URL: env['REDIS_URL'] ?? '',
      REDIS_MODE: env['REDIS_MODE'] === 'cluster' ? 'cluster' : 'sentinel',
      REDIS_SENTINEL_NAME: env['REDIS_SENTINEL_NAME'] ?? 'mymaster',
      KEY_PREFIX,
      SHARDS: shards,
      REDIS_BUDGET_BYTES: BUDGET_BYTES,
    };
    this.store = new RedisStore(this.settings);
    const login = { username: engine.user, password: engine.password };
    const settings = { log_comment: '#internal' };
    this.#clickhouse = createClient({ url: engine.url, ...login, clickhouse_settings: settings });
  }

  static async open(options: TopologyRigOptions): Promise<TopologyRig> {
    const dataDir = await mkdtemp(join(tmpdir(), 'logpond-topology-rig-'));
    return new TopologyRig(dataDir, await spawnClickHouse({ dataDir: join(dataDir, 'clickhouse') }), options);
  }

  startWorker(env: Env = {}): AppProcess {
    return this.#start('ingest-worker', env);
  }

  startAlertWorker(): AppProcess {
    return this.#start('alert-worker', { MAIL_OUTBOX_DIR: this.mailsDir });
  }

  /** Where the alert worker writes its mails. */
  get mailsDir(): string {
    return join(this.#dataDir, 'mails');
  }

  #start(name: string, env: Env): AppProcess {
    const app = startApp(name, { ...this.#env, ...env });
    this.#apps.push(app);
    return app;
  }

  /** Starts an API and waits until it is ready. */
  async startApi(env: Env = {}): Promise<ApiProcess> {
    const port = await findFreePort();
    const own = { PORT: String(port), SETUP_TOKEN_FILE: join(this.#dataDir, `setup-token-${port}`) };
    const app = this.#start('api', { ...own, ...env });
    const url = `http://127.0.0.1:${port}`;
    await waitFor(
      'the API to be ready',
      async () => {
        const answer = await fetch(`${url}/health/ready`, { signal: AbortSignal.timeout(2_000) });
        await answer.body?.cancel();
        return answer.status === 200;
      },
      START_MS_MAX,
    ).catch((error: unknown) => {
      throw new Error(`the API did not become ready; ${this.outputs()}`, { cause: error });
    });
    return Object.assign(app, { url, port });
  }

  async createTenants(perShard: number): Promise<OwnedTenant[]> {
    return createTenants(this.settings, perShard);
  }

  /** What the processes wrote last. */
  outputs(): string {
    return this.#apps.map((app) => app.output().slice(-3_000)).join('\n---\n');
  }

  /** All that the processes wrote, as far as it is kept. */
  get allOutput(): string {
    return this.#apps.map((app) => app.output()).join('\n');
  }

  /** Waits until every admitted entry is committed. */
  async waitForRest(timeoutMs = 60_000): Promise<void> {
    let last = '';
    await waitFor(
      'all shards to be drained',
      async () => {
        const shards = Array.from({ length: this.shards }, (_, shard) => shard);
        const states = await Promise.all(
          shards.map(async (shard) => this.store.client.hgetall(shardKeys(KEY_PREFIX, shard).state)),
        );
        last = JSON.stringify(states);
        return states.every(
          (state) =>
            state['epoch'] !== undefined &&
            state['draining'] === undefined &&
            state['ingest:plan'] === undefined &&
            (state['ingest:done'] ?? '1') === state['next'],
        );
      },
      timeoutMs,
    ).catch((error: unknown) => {
      throw new Error(`not at rest: ${last}\n${this.outputs()}`, { cause: error });
    });
  }

  readonly selectRows = async <Row>(query: string, params: Record<string, unknown> = {}): Promise<Row[]> => {
    const answer = await this.#clickhouse.query({
      query,
      query_params: params,
      format: 'JSONEachRow',
      clickhouse_settings: { output_format_json_quote_64bit_integers: 1 },
    });
    return answer.json<Row>();
  };

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#apps.map(async (app) => app.kill()));
    await this.store[Symbol.asyncDispose]();
    await this.#clickhouse.close();
    await this.#engine.stop();
    await rm(this.#dataDir, { recursive: true, force: true });
  }
}
