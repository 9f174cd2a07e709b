import { join } from 'node:path';
import { configSchema } from '@logpond/api/config';
import { openApi } from '@logpond/api/open';
import type { OpenApi } from '@logpond/api/open';
import { shardKeys } from '@logpond/db/shard-map';
import { readConfig } from '@logpond/runtime/env';
import { createLog } from '@logpond/runtime/log';
import { Redis } from 'ioredis';
import { expect } from 'vitest';
import { ChaosProxy } from '../system/support/chaos-proxy.ts';
import { startApp } from '../support/app-process.ts';
import { startStores } from '../support/stores.ts';
import type { TestStores } from '../support/stores.ts';
import { waitFor } from '../support/wait.ts';

export const PASSWORD = 'correct horse battery staple';

/** One user's view of one project of the user's own. */
export type TestTenant = {
  userId: string;
  email: string;
  sessionToken: string;
  organizationId: string;
  projectId: string;
  apiKey: string;
};

/** The API in process, wired as in production, on real stores with a real ingest worker behind it. */
export type ContractApi = AsyncDisposable &
  OpenApi & {
    /** Calls a route; `path` begins behind /api/v1 unless it begins with the host's root. */
    call: (method: string, path: string, init?: CallInit) => Promise<Response>;
    createTenant: (name: string) => Promise<TestTenant>;
    env: Record<string, string>;
    stores: TestStores;
    /** What the API (not the worker) speaks to Redis through; absent unless it was asked for. */
    redisProxy: ChaosProxy | undefined;
  };

export type CallInit = {
  key?: string;
  session?: string;
  json?: unknown;
  body?: string | Uint8Array | ReadableStream;
  headers?: Record<string, string>;
};

/**
 * Starts all of it; `settings` are environment variables. With `hasWorker` false nothing is admitted or stored;
 * with `isProxied` a chaos proxy stands between the API and Redis.
 */
export async function openContractApi(
  settings: Record<string, string> = {},
  { hasWorker = true, isProxied = false } = {},
): Promise<ContractApi> {
  await using starting = new AsyncDisposableStack();
  const stores = starting.use(await startStores());
  const redisProxy = isProxied ? starting.use(await openProxy(stores.redis.url)) : undefined;
  const env = { ...stores.env, SETUP_TOKEN_FILE: join(stores.dataDir, 'setup-token'), ...settings };
  if (hasWorker) starting.use(startApp('ingest-worker', env));
  const apiEnv =
    redisProxy === undefined ? env : { ...env, REDIS_URL: redisProxy.redirect(stores.redis.url) };
  const api = await openApi(readConfig(configSchema, apiEnv), starting, createLog('contract', 'silent'));
  if (hasWorker) {
    await waitFor(
      'the schema',
      async () => api.waitForSchema(AbortSignal.timeout(30_000)).then(() => true),
      30_000,
    );
    await waitForShards(env);
  }
  const stack = starting.move();
  const call: ContractApi['call'] = async (method, path, init = {}) => {
    const headers = new Headers(init.headers);
    if (init.key !== undefined) headers.set('x-api-key', init.key);
    if (init.session !== undefined) headers.set('authorization', `Bearer ${init.session}`);
    if (init.json !== undefined) headers.set('content-type', 'application/json');
    const body = init.json === undefined ? init.body : JSON.stringify(init.json);
    const url = path.startsWith('/api/') || path.startsWith('/health') ? path : `/api/v1${path}`;
    return api.app.request(url, {
      method,
      headers,
      ...(body === undefined ? {} : { body, duplex: 'half' }),
    } as RequestInit);
  };
  return {
    ...api,
    call,
    env,
    stores,
    redisProxy,
    createTenant: async (name) => createTenant(api, name),
    [Symbol.asyncDispose]: async () => stack.disposeAsync(),
  };
}

/** Until a worker has compared them with ClickHouse nothing is admitted. */
async function waitForShards(env: Readonly<Record<string, string>>): Promise<void> {
  const raw = new Redis(env['REDIS_URL'] ?? '');
  try {
    await waitFor('the shards to be prepared', async () => {
      const shards = Array.from(
        { length: Number(env['SHARDS']) },
        (_, shard) => shardKeys('lp', shard).state,
      );
      const epochs = await Promise.all(shards.map(async (state) => raw.hget(state, 'epoch')));
      return epochs.every((epoch) => epoch !== null);
    });
  } finally {
    raw.disconnect();
  }
}

async function openProxy(url: string): Promise<ChaosProxy> {
  return ChaosProxy.open(Number(new URL(url).port));
}

async function createTenant({ deps }: OpenApi, name: string): Promise<TestTenant> {
  const actor = { kind: 'system' } as const;
  const email = `${name}@example.org`;
  const user = await deps.accounts.createUser(actor, { email, password: PASSWORD, name, isAdmin: false });
  const session = await deps.accounts.login(email, PASSWORD);
  const organization = await deps.organizations.create(actor, user.id, { name });
  const project = await deps.projects.create(actor, { organizationId: organization.id, name });
  const { apiKey } = await deps.apiKeys.create(actor, project.id, { name });
  return {
    userId: user.id,
    email,
    sessionToken: session?.token ?? '',
    organizationId: organization.id,
    projectId: project.id,
    apiKey,
  };
}

export type ErrorBody = {
  error: string;
  code: string;
  statusCode: number;
  requestId: string;
  details?: { index?: number; path: string; message: string }[];
};

/** Asserts the one shape of errors of contract.md §1 and returns the body. */
export async function expectError(response: Response, status: number, code: string): Promise<ErrorBody> {
  const text = await response.text();
  expect(`${response.status} ${text}`).toMatch(new RegExp(`^${status} .*"code":"${code}"`, 's'));
  const body = JSON.parse(text) as ErrorBody;
  expect(
    Object.keys(body).filter(
      (name) => !['error', 'code', 'statusCode', 'details', 'requestId'].includes(name),
    ),
  ).toEqual([]);
  expect(body.statusCode).toBe(status);
  expect(body.error.length).toBeGreaterThan(5);
  expect(body.requestId).toBe(response.headers.get('x-request-id'));
  if (status === 429 || status === 503) expect(response.headers.get('retry-after')).toMatch(/^[1-9]\d*$/);
  return body;
}

/** The JSON of an answer that must have this status. */
export async function expectJson<T>(response: Response, status = 200): Promise<T> {
  const text = await response.text();
  expect(`${response.status} ${text.slice(0, 300)}`).toMatch(new RegExp(`^${status} `));
  expect(response.headers.get('content-type')).toBe('application/json');
  return JSON.parse(text) as T;
}
