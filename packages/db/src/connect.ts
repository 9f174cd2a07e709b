import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { Cluster } from 'ioredis';
import type { Redis } from 'ioredis';
import { openConnection, openOnce, readAddress } from './redis-connection.ts';
import type { Purpose, RedisAddress, RedisClient, RedisNode } from './redis-connection.ts';
import { assertServerSettings, nameNode, UnfitRedisError } from './redis-server-check.ts';
import { findRedisModeProblem } from './settings.ts';
import type { StoreSettings } from './settings.ts';
import { shardCountKey, shardKeys } from './shard-map.ts';
import { StoreError } from './store-error.ts';

export type { RedisClient } from './redis-connection.ts';

/** How long a start waits for Redis (loading a large file, say) before it gives up. */
const START_TIMEOUT_MS = 60_000;
const NODE_TIMEOUT_MS = 2_000;
const POLL_MS = 100;
const REPLAY_WINDOW_MS = 15 * 60_000;

/** The settings of Redis; those that may be left out have the defaults of settings.ts. */
export type RedisSettings = Pick<
  StoreSettings,
  'REDIS_URL' | 'KEY_PREFIX' | 'SHARDS' | 'REDIS_BUDGET_BYTES'
> &
  Partial<
    Pick<
      StoreSettings,
      | 'REDIS_MODE'
      | 'REDIS_SENTINEL_NAME'
      | 'REDIS_SENTINEL_PASSWORD'
      | 'REDIS_WAIT_REPLICAS'
      | 'REPLAY_WINDOW_MS'
    >
  >;

/** A connection that subscribes to channels of the whole installation. */
export type RedisSubscriber = {
  on(event: 'message', listener: (channel: string, message: string) => void): unknown;
  on(event: 'ready', listener: () => void): unknown;
  subscribe(channel: string): Promise<unknown>;
  disconnect(): void;
};

type Connection = { disconnect: () => void };

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
  /** Memory of all servers together that all streams together may take. */
  readonly budgetBytes: number;
  /** Replicas that must hold a write before it counts as done, where that is asked for (`runReplicated`). */
  readonly waitReplicas: number;
  /** How long stored entries stay in the stream. */
  readonly replayWindowMs: number;
  /** For commands; they fail at once while there is no connection. */
  readonly client: RedisClient;
  readonly #address: RedisAddress;
  readonly #others = new Set<Connection>();

  /** @throws {Error} when REDIS_URL does not suit REDIS_MODE. */
  constructor(settings: RedisSettings) {
    const address = { REDIS_MODE: settings.REDIS_MODE ?? 'single', REDIS_URL: settings.REDIS_URL } as const;
    const problem = findRedisModeProblem(address);
    if (problem !== undefined) throw new Error(`REDIS_URL: ${problem}`);
    this.prefix = settings.KEY_PREFIX;
    this.shards = settings.SHARDS;
    this.budgetBytes = settings.REDIS_BUDGET_BYTES;
    this.waitReplicas = settings.REDIS_WAIT_REPLICAS ?? 0;
    this.replayWindowMs = settings.REPLAY_WINDOW_MS ?? REPLAY_WINDOW_MS;
    this.#address = readAddress(settings);
    this.client = openConnection(this.#address, 'commands');
  }

  /** A connection of its own for subscriptions; it subscribes again by itself after a reconnect. */
  subscriber(): RedisSubscriber {
    return this.#keep(openConnection(this.#address, 'subscriptions'));
  }

  /** A connection of its own for commands that wait (XREAD BLOCK, less than 10 s), without a command timeout. */
  async blocking(): Promise<RedisClient> {
    return this.#openReady('waits');
  }

  /** A further connection for commands, so that large blocks do not delay small answers. */
  async writer(): Promise<RedisClient> {
    return this.#openReady('commands');
  }

  /**
   * A connection of its own to the server that holds `key`, for a sharded subscription beside it. It does not come
   * back when it has ended: the key may be elsewhere by then.
   */
  async openBeside(key: string): Promise<Redis> {
    const node = this.client instanceof Cluster ? await findNode(this.client, key) : undefined;
    return this.#keep(openOnce(this.#address, 'subscriptions', node));
  }

  /** Closes a connection that was opened with one of the four above. */
  close(connection: Connection): void {
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

  /**
   * Waits for Redis, and checks each primary that there is and each replica that can be reached.
   *
   * @throws as `connectRedis`.
   */
  async assertUsable(): Promise<void> {
    await waitUntilReady(this.client);
    const { client, shards } = this;
    const shardNodes = new Map<string, number>();
    if (client instanceof Cluster) {
      await waitForPrimaries(client);
      for (let shard = 0; shard < shards; shard += 1) {
        const { host, port } = await findNode(client, shardKeys(this.prefix, shard).state);
        shardNodes.set(`${host}:${port}`, (shardNodes.get(`${host}:${port}`) ?? 0) + 1);
      }
    }
    const share = this.budgetBytes / shards;
    await assertServerSettings(client, {
      budgetBytesOf: (name) =>
        client instanceof Cluster ? share * (shardNodes.get(name) ?? 0) : share * shards,
      openReplica: (node) => this.#keep(openOnce(this.#address, 'commands', node)),
      close: (connection) => this.close(connection),
    });
    await assertShards(this);
  }

  #keep<C extends Connection>(connection: C): C {
    this.#others.add(connection);
    return connection;
  }

  /** Without an offline queue a command fails until the connection stands. */
  async #openReady(purpose: Purpose): Promise<RedisClient> {
    const connection = this.#keep(openConnection(this.#address, purpose));
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

/**
 * Opens the connections and checks that this Redis keeps the promise of a 200 (docs/operations.md).
 *
 * @throws {StoreError} `unavailable` when Redis, or one primary of a cluster, cannot be reached within 60 s.
 * @throws {UnfitRedisError} naming every setting of a server that must be different.
 */
export async function connectRedis(settings: RedisSettings): Promise<RedisStore> {
  const store = new RedisStore(settings);
  const deadlineMs = performance.now() + START_TIMEOUT_MS;
  try {
    for (;;) {
      const problem = await store.assertUsable().then(
        () => undefined,
        (error: unknown) => (error instanceof UnfitRedisError ? error : mapRedisError(error)),
      );
      if (problem === undefined) return store;
      // A connection that broke amid the questions comes back by itself.
      if (!(problem instanceof StoreError) || performance.now() > deadlineMs) throw problem;
      await delay(POLL_MS);
    }
  } catch (error) {
    await store[Symbol.asyncDispose]();
    throw error;
  }
}

async function waitUntilReady(client: RedisClient): Promise<void> {
  if (client.status !== 'ready') {
    const ready = Promise.withResolvers<void>();
    const timer = setTimeout(() => ready.reject(noAnswer('Redis')), START_TIMEOUT_MS);
    client.once('ready', ready.resolve);
    await ready.promise.finally(() => clearTimeout(timer));
  }
  if (client instanceof Cluster) await Promise.allSettled(client.nodes('master').map(waitForNode));
}

/** All that a cluster's slots are on; one that is down is waited for until its replica has taken over. */
async function waitForPrimaries(cluster: Cluster): Promise<void> {
  const deadlineMs = performance.now() + START_TIMEOUT_MS;
  for (;;) {
    const nodes = new Map(cluster.nodes('master').map((node) => [nameNode(node), node]));
    const names = [...new Set(cluster.slots.map(([primary]) => primary ?? ''))];
    const missing = names.filter((name) => nodes.get(name)?.status !== 'ready');
    if (missing.length === 0 && names.length > 0) return;
    if (performance.now() > deadlineMs) throw noAnswer(`Redis at ${missing.join(', ')}`);
    await Promise.allSettled([...nodes.values()].map(waitForNode));
    await delay(POLL_MS);
    cluster.refreshSlotsCache();
  }
}

async function waitForNode(node: Redis): Promise<void> {
  if (node.status === 'wait') await node.connect();
  else if (node.status !== 'ready') {
    await once(node, 'ready', { signal: AbortSignal.timeout(NODE_TIMEOUT_MS) });
  }
}

function noAnswer(who: string): StoreError {
  return new StoreError('redis', 'unavailable', `${who} did not answer within ${START_TIMEOUT_MS} ms`);
}

/** The node that serves a key's slot, by a table that is fetched anew. @throws {StoreError} `unavailable`. */
async function findNode(cluster: Cluster, key: string): Promise<RedisNode> {
  try {
    const slot = Number(await cluster.cluster('KEYSLOT', key));
    await new Promise<void>((resolve, reject) => {
      cluster.refreshSlotsCache((error) => (error ? reject(error) : resolve()));
    });
    const name = cluster.slots[slot]?.[0] ?? '';
    const at = name.lastIndexOf(':');
    if (at < 0) throw new Error(`no node serves slot ${slot}`);
    return { host: name.slice(0, at), port: Number(name.slice(at + 1)) };
  } catch (error) {
    throw mapRedisError(error);
  }
}

/** With another number of shards projects would change streams, and what waits in the left ones would never be stored. */
async function assertShards({ client, prefix, shards }: RedisStore): Promise<void> {
  const inForce = await client.get(shardCountKey(prefix));
  if (inForce !== null && Number(inForce) !== shards) {
    throw new UnfitRedisError(`SHARDS: expected ${inForce}, as these streams were begun with; got ${shards}`);
  }
}

/** Whatever a Redis command threw, as a StoreError; a refusal that we caused ourselves stays what it is. */
export function mapRedisError(error: unknown): Error {
  if (error instanceof StoreError) return error;
  const message = error instanceof Error ? error.message : String(error);
  if (OUR_FAULT.test(message) && !NOT_OUR_FAULT.test(message)) {
    // Without the client's own error: it carries the command with its arguments, log entries among them.
    return new Error(`Redis refused a command; ${message}`);
  }
  return new StoreError('redis', 'unavailable', `Redis did not do it; ${message}`, { cause: error });
}

/** Waits for the answer of a command. @throws what `mapRedisError` makes of its failure. */
export async function askRedis<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    throw mapRedisError(error);
  }
}

/** Everything else is the server's state: READONLY, LOADING, CLUSTERDOWN, TRYAGAIN, MISCONF, OOM, and silence. */
const OUR_FAULT =
  /^(ERR|WRONGTYPE|NOSCRIPT|CROSSSLOT|NOPERM)\b|^All (the )?keys in (a|the) pipeline .*should belong/;
const NOT_OUR_FAULT = /max number of clients/;
