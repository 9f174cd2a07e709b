import { setTimeout as delay } from 'node:timers/promises';
import { QueueKeys, RedisConnection, RedisQueueBackend } from 'bullmq';
import type { WorkerOptions } from 'bullmq';
import { Cluster } from 'ioredis';
import type { RedisClient, RedisSettings } from './connect.ts';
import { openConnection, readAddress } from './redis-connection.ts';
import { StoreError } from './store-error.ts';

const READY_TIMEOUT_MS = 60_000;
/** The queue's own waits take up to 10 s on the server. */
const WAIT_SILENCE_MAX_MS = 15_000;
const PAUSE_AFTER_FAILURE_MS = 1_000;

/** For adding jobs: a command fails at once while Redis is away. @throws {StoreError} `unavailable`. */
export async function openForAdding(settings: RedisSettings): Promise<RedisClient> {
  return whenReady(openConnection(readAddress(settings), 'commands'));
}

/**
 * For working on jobs: commands wait while Redis is away, on a second connection those that wait for jobs.
 *
 * What was unanswered when a connection broke is sent again here, as BullMQ expects (otherwise its promise would never
 * settle): each of its scripts names a job and the lock on it, so the second time changes nothing.
 *
 * @throws {StoreError} `unavailable`.
 */
export async function openForWorking(
  settings: RedisSettings,
): Promise<{ client: RedisClient; blocking: RedisClient }> {
  const pattern = openConnection(readAddress(settings), 'subscriptions');
  const client = openLike(pattern, {});
  const blocking = openLike(pattern, { socketTimeout: WAIT_SILENCE_MAX_MS });
  pattern.disconnect();
  try {
    return { client: await whenReady(client), blocking: await whenReady(blocking) };
  } catch (error) {
    for (const connection of [client, blocking]) connection.disconnect();
    throw error;
  }
}

/**
 * BullMQ's access to Redis over two given connections. The asking for jobs rests after a failure: BullMQ asks again
 * at once, also when Redis refuses (out of memory, say).
 */
export function makeBackend(
  name: string,
  options: WorkerOptions,
  { client, blocking }: { client: RedisClient; blocking: RedisClient },
): RedisQueueBackend {
  const keys = new QueueKeys(options.prefix);
  const backend = new RedisQueueBackend(
    new RedisConnection(client, { shared: true, blocking: false }),
    name,
    keys.getKeys(name),
    (type) => keys.toKey(name, type),
    options,
    new RedisConnection(blocking, { shared: true, blocking: true }),
  );
  const ask = backend.moveToActive.bind(backend);
  backend.moveToActive = async (...args) => {
    try {
      return (await ask(...args)) as unknown[];
    } catch (error) {
      await delay(PAUSE_AFTER_FAILURE_MS);
      throw error;
    }
  };
  return backend;
}

function openLike(pattern: RedisClient, changes: { socketTimeout?: number }): RedisClient {
  const options = { autoResendUnfulfilledCommands: true, ...changes };
  let connection: RedisClient;
  if (pattern instanceof Cluster) {
    const { replyMapping: _default, ...redisOptions } = pattern.options.redisOptions ?? {};
    connection = pattern.duplicate([], { redisOptions: { ...redisOptions, ...options } });
  } else {
    connection = pattern.duplicate(options);
  }
  // Whoever waits is told; the event only repeats it.
  connection.on('error', () => {});
  return connection;
}

/** In a cluster also each of its primaries: a command to one that is not connected yet would fail. */
async function whenReady(client: RedisClient): Promise<RedisClient> {
  const ready = Promise.withResolvers<void>();
  const timer = setTimeout(() => {
    const message = `Redis did not answer within ${READY_TIMEOUT_MS} ms`;
    ready.reject(new StoreError('redis', 'unavailable', message));
  }, READY_TIMEOUT_MS);
  if (client.status === 'ready') ready.resolve();
  else client.once('ready', ready.resolve);
  try {
    await ready.promise;
    if (client instanceof Cluster) {
      await Promise.allSettled(client.nodes('master').map(async (node) => node.ping()));
    }
    return client;
  } catch (error) {
    client.disconnect();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}
