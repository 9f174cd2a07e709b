import { Cluster, Redis } from 'ioredis';
import type { ClusterOptions, RedisOptions } from 'ioredis';
import { splitRedisUrls } from './settings.ts';
import type { StoreSettings } from './settings.ts';

const CONNECT_TIMEOUT_MS = 2_000;
const COMMAND_TIMEOUT_MS = 2_000;
/** A connection that gives nothing back for so long while something is asked is cut and made anew. */
const SILENCE_MAX_MS = 5_000;
const RECONNECT_DELAY_MAX_MS = 1_000;
const SLOTS_TIMEOUT_MS = 1_000;
const REDIRECTIONS_MAX = 8;
const PORT_DEFAULT = 6379;

/** A server, the primary behind Sentinels, or a cluster. */
export type RedisClient = Redis | Cluster;

/** Where Redis is and how to log in. */
export type RedisAddress = {
  mode: StoreSettings['REDIS_MODE'];
  /** As given, when the mode is `single`. */
  url: string;
  nodes: readonly RedisNode[];
  login: Pick<ConnectionOptions, 'username' | 'password' | 'db' | 'tls'>;
  sentinelName: string;
  sentinelPassword: string;
};

/** Its own type allows an undefined that its constructor does not. */
type ConnectionOptions = Omit<RedisOptions, 'replyMapping'>;

/** Reads the address settings; absent ones mean a single server. */
export function readAddress(
  settings: Pick<StoreSettings, 'REDIS_URL'> &
    Partial<Pick<StoreSettings, 'REDIS_MODE' | 'REDIS_SENTINEL_NAME' | 'REDIS_SENTINEL_PASSWORD'>>,
): RedisAddress {
  const urls = splitRedisUrls(settings.REDIS_URL).map((url) => new URL(url));
  const nodes = urls.map(({ hostname, port }) => ({
    host: hostname.replace(/^\[(.*)\]$/, '$1'),
    port: Number(port || PORT_DEFAULT),
  }));
  const [first] = urls;
  const username = decodeURIComponent(first?.username ?? '');
  const password = decodeURIComponent(first?.password ?? '');
  const database = Number(/^\/(\d+)$/.exec(first?.pathname ?? '')?.[1] ?? 0);
  return {
    mode: settings.REDIS_MODE ?? 'single',
    url: settings.REDIS_URL,
    nodes,
    login: {
      ...(username !== '' && { username }),
      ...(password !== '' && { password }),
      ...(database !== 0 && { db: database }),
      ...(first?.protocol === 'rediss:' && { tls: {} }),
    },
    sentinelName: settings.REDIS_SENTINEL_NAME ?? 'mymaster',
    sentinelPassword: settings.REDIS_SENTINEL_PASSWORD ?? '',
  };
}

/**
 * No command is ever sent twice: `autoResendUnfulfilledCommands` would resend what was unanswered when a
 * connection broke. Answering `true` below cuts the connection of a server that turned into a replica, so that
 * the next one goes to its successor; the refused command is not sent again either.
 */
const everyConnection = {
  connectTimeout: CONNECT_TIMEOUT_MS,
  autoResendUnfulfilledCommands: false,
  keepAlive: 10_000,
  reconnectOnError: (error: Error) => error.message.startsWith('READONLY'),
} satisfies ConnectionOptions;

/** What a connection is for. A wait ends on the server, so it has no timeout but that of a silent connection. */
const PURPOSES = {
  commands: {
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    commandTimeout: COMMAND_TIMEOUT_MS,
    socketTimeout: SILENCE_MAX_MS,
  },
  waits: { enableOfflineQueue: false, maxRetriesPerRequest: 0, socketTimeout: 2 * SILENCE_MAX_MS },
  subscriptions: {
    enableOfflineQueue: true,
    maxRetriesPerRequest: null,
    autoResubscribe: true,
    socketTimeout: SILENCE_MAX_MS,
  },
} satisfies Record<string, ConnectionOptions>;

export type Purpose = keyof typeof PURPOSES;

/** Opens a connection that comes back by itself; in a cluster one to each node that is needed. */
export function openConnection(address: RedisAddress, purpose: Purpose): RedisClient {
  const options = { ...everyConnection, retryStrategy: pauseBeforeRetry, ...PURPOSES[purpose] };
  switch (address.mode) {
    case 'single':
      return silence(new Redis(address.url, options));
    case 'sentinel':
      return silence(new Redis({ ...options, ...address.login, ...sentinelOptions(address) }));
    case 'cluster':
      return openCluster(address, purpose);
  }
}

/** One server of a cluster, or a replica. */
export type RedisNode = { host: string; port: number };

/**
 * Opens a connection that does not come back when it has ended: to `node`, or to the only server or the primary
 * that there is. Commands wait until it stands.
 */
export function openOnce(address: RedisAddress, purpose: Purpose, node?: RedisNode): Redis {
  const options = { ...everyConnection, ...PURPOSES[purpose], enableOfflineQueue: true, retryStrategy: null };
  if (node !== undefined) return silence(new Redis({ ...options, ...address.login, ...node }));
  if (address.mode === 'single') return silence(new Redis(address.url, options));
  return silence(new Redis({ ...options, ...address.login, ...sentinelOptions(address) }));
}

function sentinelOptions(address: RedisAddress): ConnectionOptions {
  return {
    sentinels: [...address.nodes],
    name: address.sentinelName,
    sentinelCommandTimeout: COMMAND_TIMEOUT_MS,
    sentinelRetryStrategy: pauseBeforeRetry,
    ...(address.sentinelPassword !== '' && { sentinelPassword: address.sentinelPassword }),
    ...(address.login.tls !== undefined && { sentinelTLS: {}, enableTLSForSentinelMode: true }),
  };
}

/**
 * Of the client's own retries in a cluster only those of MOVED, ASK and TRYAGAIN are left: the node refused the
 * command, so it was not executed. The others also resend what was under way when a connection closed.
 */
const clusterRetries = {
  retryDelayOnFailover: 0,
  retryDelayOnClusterDown: 0,
  retryDelayOnTryAgain: 50,
  maxRedirections: REDIRECTIONS_MAX,
  clusterRetryStrategy: pauseBeforeRetry,
  slotsRefreshTimeout: SLOTS_TIMEOUT_MS,
} satisfies ClusterOptions;

function openCluster(address: RedisAddress, purpose: Purpose): Cluster {
  // A node's connection is never opened again by itself, so nothing is resent when it ends.
  const { enableOfflineQueue, ...redisOptions } = PURPOSES[purpose];
  const cluster = new Cluster([...address.nodes], {
    ...clusterRetries,
    enableOfflineQueue,
    redisOptions: { ...everyConnection, ...redisOptions, ...address.login },
  });
  // Without an offline queue all but the first command to a node that is not connected yet would fail.
  if (purpose === 'commands') {
    cluster.on('ready', () => cluster.nodes('master').forEach(connectNow));
    cluster.on('+node', (node: Redis) => {
      // Before that the client itself asks whichever node is first.
      if (cluster.status === 'ready' && node.options.readOnly !== true) connectNow(node);
    });
  }
  return silence(cluster);
}

/** A failure is told to the commands that go there. */
function connectNow(node: Redis): void {
  if (node.status === 'wait') node.connect().catch(() => {});
}

function pauseBeforeRetry(attempt: number): number {
  return Math.min(50 * attempt, RECONNECT_DELAY_MAX_MS);
}

/** Every command reports its own failure; the connection's event only repeats it. */
function silence<C extends RedisClient>(client: C): C {
  client.on('error', () => {});
  return client;
}
