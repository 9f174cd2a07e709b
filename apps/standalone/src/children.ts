import { join } from 'node:path';
import nodeFlags from '@logpond/runtime/node-flags.json' with { type: 'json' };
import { pingClickHouse, prepareClickHouse } from './clickhouse-process.ts';
import { CHECKOUT_DIR } from './config.ts';
import type { LauncherConfig } from './config.ts';
import type { DataDir } from './data-dir.ts';
import type { Secrets } from './installation.ts';
import { pingRedis, prepareRedis } from './redis.ts';
import { findFreePort } from './store-process.ts';
import type { ChildSpec } from './supervisor.ts';

export type Store = {
  url: string;
  /** Undefined for a server that runs elsewhere. */
  embedded?: { spec: ChildSpec; isReady: () => Promise<boolean> };
};

const ENGINE_USER = 'logpond';
/** What runProcess gives itself, and a little more. */
const PROCESS_STOP_MS = 27_000;
const STORE_STOP_MS = 20_000;
const REDIS_MAXMEMORY_BYTES_MIN = 2 * 1024 ** 3;

/** Redis: the one of REDIS_URL, else an own one on a free port, which stays the same while this launcher lives. */
export async function chooseRedis(
  config: LauncherConfig,
  dataDir: DataDir,
  secrets: Secrets,
): Promise<Store> {
  if (config.REDIS_URL !== undefined) return { url: config.REDIS_URL };
  const port = await findFreePort();
  const password = secrets.redisPassword;
  const command = await prepareRedis({
    dataDir: dataDir.resolve('redis'),
    port,
    password,
    // The streams' budget may be 60 % of it at most (docs/operations.md).
    maxmemoryBytes: Math.max(REDIS_MAXMEMORY_BYTES_MIN, 2 * config.REDIS_BUDGET_BYTES),
  });
  // Redis rewrites its command line once it runs.
  const marks = [...command.args, `127.0.0.1:${port}`];
  return {
    url: `redis://:${password}@127.0.0.1:${port}`,
    embedded: {
      spec: { name: 'redis', ...command, env: {}, marks, stopMsMax: STORE_STOP_MS },
      isReady: () => pingRedis(port, password),
    },
  };
}

/** ClickHouse: the server of CLICKHOUSE_URL, else the embedded engine on a free port. */
export async function chooseClickHouse(
  config: LauncherConfig,
  dataDir: DataDir,
  secrets: Secrets,
): Promise<Store> {
  if (config.CLICKHOUSE_URL !== undefined) return { url: config.CLICKHOUSE_URL };
  const port = await findFreePort();
  const { env, ...command } = prepareClickHouse({
    dataDir: dataDir.resolve('clickhouse'),
    port,
    user: ENGINE_USER,
    password: secrets.clickhousePassword,
  });
  return {
    url: `http://127.0.0.1:${port}`,
    embedded: {
      spec: { name: 'clickhouse', ...command, env, marks: [...command.args], stopMsMax: STORE_STOP_MS },
      isReady: () => pingClickHouse(port),
    },
  };
}

/** The environment by which every process finds the stores and reads what is sealed there; what the user set beside passes through. */
export function renderStoreEnvironment(
  config: LauncherConfig,
  redis: Store,
  clickhouse: Store,
  secrets: Secrets,
): Record<string, string> {
  const engine = {
    CLICKHOUSE_USER: ENGINE_USER,
    CLICKHOUSE_PASSWORD: secrets.clickhousePassword,
    CLICKHOUSE_PASSWORD_FILE: '',
    CLICKHOUSE_DATABASE: 'default',
    CLICKHOUSE_PROJECT_SETTING: 'log_comment',
  };
  return {
    REDIS_URL: redis.url,
    REDIS_URL_FILE: '',
    CLICKHOUSE_URL: clickhouse.url,
    CLICKHOUSE_URL_FILE: '',
    ...(clickhouse.embedded ? engine : {}),
    SHARDS: String(config.SHARDS),
    SECRET_KEYS: config.SECRET_KEYS ?? secrets.secretKeys,
    SECRET_KEYS_FILE: '',
  };
}

/** How the alert worker tells people from this machine. */
export function renderAlertEnvironment(config: LauncherConfig, dataDir: DataDir): Record<string, string> {
  return {
    PUBLIC_URL: config.PUBLIC_URL ?? config.url,
    MAIL_OUTBOX_DIR: findMailOutbox(config, dataDir),
  };
}

/** Where mails are written that are not sent. */
export function findMailOutbox(config: LauncherConfig, dataDir: DataDir): string {
  return config.MAIL_OUTBOX_DIR ?? dataDir.resolve('outbox');
}

/** One of Logpond's own processes. */
export function renderAppSpec(
  name: 'api' | 'ingest-worker' | 'alert-worker',
  env: Record<string, string>,
): ChildSpec {
  const script = join(CHECKOUT_DIR, 'apps', name, 'src', 'main.ts');
  return {
    name,
    command: process.execPath,
    args: [...nodeFlags, script],
    // One listener for metrics cannot serve three processes.
    env: { ...env, METRICS_PORT: '0' },
    marks: [script],
    stopMsMax: PROCESS_STOP_MS,
  };
}
