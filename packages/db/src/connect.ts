import { Redis } from 'ioredis';
import type { RedisOptions } from 'ioredis';
import { shardCountKey } from './shard-map.ts';
import { StoreError } from './store-error.ts';
import type { StoreSettings } from './settings.ts';

const CONNECT_TIMEOUT_MS = 2_000;
const COMMAND_TIMEOUT_MS = 2_000;
const RECONNECT_DELAY_MAX_MS = 1_000;
/** How long a start waits for Redis (loading a large file, say) before it gives up. */
const START_TIMEOUT_MS = 60_000;
const REDIS_MAJOR_MIN = 7;
/** The rest of the server's memory is for cursors, accounts, queues and the copy made while it rewrites its file. */
const BUDGET_SHARE_MAX = 0.6;

export type RedisSettings = Pick<StoreSettings, 'REDIS_URL' | 'KEY_PREFIX' | 'SHARDS' | 'REDIS_BUDGET_BYTES'>;

/**
 * One process's connections to Redis; closing it closes them all.
 *
 * No command is ever sent twice by the client: the defaults of ioredis resend what was unanswered when a
 * connection broke, which stored batches twice. A command without an answer fails as `unavailable`, meaning
 * that its outcome is unknown.
 */
export class RedisStore implements AsyncDisposable {
  readonly prefix: string;
  readonly shards: number;
  /** Memory on the server that all streams together may take. */
  readonly budgetBytes: number;
  /** For commands; they fail at once while there is no connection. */
  readonly client: Redis;
  readonly #url: string;
  readonly #others = new Set<Redis>();

  constructor(settings: RedisSettings) {
    this.prefix = settings.KEY_PREFIX;
    this.shards = settings.SHARDS;
    this.budgetBytes = settings.REDIS_BUDGET_BYTES;
    this.#url = settings.REDIS_URL;
    this.client = new Redis(this.#url, { ...commandOptions, commandTimeout: COMMAND_TIMEOUT_MS });
    this.client.on('error', ignoreConnectionError);
  }

  /** A connection of its own for subscriptions; it subscribes again by itself after a reconnect. */
  subscriber(): Redis {
    return this.#open({ enableOfflineQueue: true, maxRetriesPerRequest: null, autoResubscribe: true });
  }

  /** A connection of its own for commands that wait (XREAD BLOCK), without a command timeout. */
  async blocking(): Promise<Redis> {
    return this.#openReady(commandOptions);
  }

  /** A further connection for commands, so that large blocks do not delay small answers. */
  async writer(): Promise<Redis> {
    return this.#openReady({ ...commandOptions, commandTimeout: COMMAND_TIMEOUT_MS });
  }

  /** Closes a connection that was opened with one of the three above. */
  close(connection: Redis): void {
    this.#others.delete(connection);
    connection.disconnect();
  }

  /** Whether Redis answers within the command timeout. */
  async ping(): Promise<boolean> {
    try {
      return (await this.client.ping()) === 'PONG';
    } catch {
      return false;
    }
  }

  #open(options: ConnectionOptions): Redis {
    const connection = new Redis(this.#url, { ...baseOptions, ...options });
    connection.on('error', ignoreConnectionError);
    this.#others.add(connection);
    return connection;
  }

  /** Without an offline queue a command fails until the connection stands. */
  async #openReady(options: ConnectionOptions): Promise<Redis> {
    const connection = this.#open(options);
    try {
      await waitUntilReady(connection);
      return connection;
    } catch (error) {
      this.close(connection);
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const connection of [...this.#others, this.client]) connection.disconnect();
    this.#others.clear();
    await Promise.resolve();
  }
}

/** Its own type allows an undefined that its constructor does not. */
type ConnectionOptions = Omit<RedisOptions, 'replyMapping'>;

const baseOptions: ConnectionOptions = {
  connectTimeout: CONNECT_TIMEOUT_MS,
  retryStrategy: (attempt) => Math.min(50 * attempt, RECONNECT_DELAY_MAX_MS),
  autoResendUnfulfilledCommands: false,
  keepAlive: 10_000,
};

const commandOptions: ConnectionOptions = {
  ...baseOptions,
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
};

/** Every command reports its own failure; the connection's event only repeats it. */
function ignoreConnectionError(): void {}

/**
 * Opens the connections and checks that this Redis keeps the promise of a 200 (docs/operations.md).
 *
 * @throws {StoreError} `unavailable` when Redis cannot be reached within 60 s.
 * @throws {Error} naming every setting of the server that must be different.
 */
export async function connectRedis(settings: RedisSettings): Promise<RedisStore> {
  const store = new RedisStore(settings);
  try {
    await waitUntilReady(store.client);
    await assertServerSettings(store.client, settings.REDIS_BUDGET_BYTES);
    await assertShards(store);
    return store;
  } catch (error) {
    await store[Symbol.asyncDispose]();
    throw error;
  }
}

async function waitUntilReady(client: Redis): Promise<void> {
  if (client.status === 'ready') return;
  const ready = Promise.withResolvers<void>();
  const timer = setTimeout(() => {
    ready.reject(
      new StoreError('redis', 'unavailable', `Redis did not answer within ${START_TIMEOUT_MS} ms`),
    );
  }, START_TIMEOUT_MS);
  client.once('ready', ready.resolve);
  await ready.promise.finally(() => clearTimeout(timer));
}

const REQUIRED: Readonly<Record<string, { wanted: string; holds: (value: string) => boolean }>> = {
  appendonly: { wanted: 'yes', holds: (value) => value === 'yes' },
  appendfsync: { wanted: 'always', holds: (value) => value === 'always' },
  'no-appendfsync-on-rewrite': { wanted: 'no', holds: (value) => value === 'no' },
  'maxmemory-policy': { wanted: 'noeviction', holds: (value) => value === 'noeviction' },
  maxmemory: { wanted: 'a number of bytes above 0', holds: (value) => Number(value) > 0 },
  'auto-aof-rewrite-min-size': {
    wanted: 'at least 1073741824 (1gb)',
    holds: (value) => Number(value) >= 1_073_741_824,
  },
};

/** Refuses a Redis whose settings would make a 200 a lie. */
async function assertServerSettings(client: Redis, budgetBytes: number): Promise<void> {
  const version = /redis_version:(\d+)/.exec(await client.info('server'))?.[1] ?? '0';
  const problems: string[] = [];
  if (Number(version) < REDIS_MAJOR_MIN)
    problems.push(`version: expected ${REDIS_MAJOR_MIN} or newer, got ${version}`);
  for (const [name, rule] of Object.entries(REQUIRED)) {
    const answer: unknown = await client.config('GET', name);
    const value = Array.isArray(answer) ? String(answer[1]) : 'nothing';
    if (name === 'maxmemory' && Number(value) > 0 && budgetBytes > Number(value) * BUDGET_SHARE_MAX) {
      problems.push(
        `maxmemory: expected REDIS_BUDGET_BYTES (${budgetBytes}) to be at most 60 % of it, got ${value}`,
      );
    }
    if (!rule.holds(value)) problems.push(`${name}: expected ${rule.wanted}, got ${value}`);
  }
  if (problems.length > 0)
    throw new Error(`this Redis would lose acknowledged entries; ${problems.join('; ')}`);
}

/** With another number of shards projects would change streams, and what waits in the left ones would never be stored. */
async function assertShards({ client, prefix, shards }: RedisStore): Promise<void> {
  const inForce = await client.get(shardCountKey(prefix));
  if (inForce !== null && Number(inForce) !== shards) {
    throw new Error(`SHARDS: expected ${inForce}, as these streams were begun with; got ${shards}`);
  }
}

/** Whatever a Redis command threw, as a StoreError; a refusal that we caused ourselves stays what it is. */
export function mapRedisError(error: unknown): Error {
  if (error instanceof StoreError) return error;
  const message = error instanceof Error ? error.message : String(error);
  if (
    /^(ERR|WRONGTYPE|NOSCRIPT|CROSSSLOT|NOPERM)\b/.test(message) &&
    !/max number of clients/.test(message)
  ) {
    // Without the client's own error: it carries the command with its arguments, log entries among them.
    return new Error(`Redis refused a command; ${message}`);
  }
  return new StoreError('redis', 'unavailable', `Redis did not do it; ${message}`, { cause: error });
}
