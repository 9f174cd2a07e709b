import { Cluster } from 'ioredis';
import type { Redis } from 'ioredis';
import type { RedisClient, RedisNode } from './redis-connection.ts';

const REDIS_MAJOR_MIN = 7;
/** The rest of the server's memory is for cursors, accounts, queues and the copy made while it rewrites its file. */
const BUDGET_SHARE_MAX = 0.6;

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

/** A server that would break the promise as it is set: waiting does not help. */
export class UnfitRedisError extends Error {
  override readonly name = 'UnfitRedisError';
}

type CheckContext = {
  /** What the streams may take on a primary, by its `host:port`. */
  budgetBytesOf: (name: string) => number;
  openReplica: (node: RedisNode) => Redis;
  close: (connection: Redis) => void;
};

/** `host:port`, as the client calls a node. */
export function nameNode(node: Redis): string {
  return `${node.options.host ?? ''}:${node.options.port ?? 0}`;
}

/**
 * Refuses Redis servers whose settings would make a 200 a lie. A replica becomes the primary one day, so those that
 * can be reached are held to the same.
 *
 * @throws {UnfitRedisError} naming every setting that must be different.
 */
export async function assertServerSettings(client: RedisClient, context: CheckContext): Promise<void> {
  const problems =
    client instanceof Cluster
      ? await findClusterProblems(client, context)
      : await findReplicatedProblems(client, context);
  if (problems.length > 0)
    throw new UnfitRedisError(`this Redis would lose acknowledged entries; ${problems.join('; ')}`);
}

async function findClusterProblems(cluster: Cluster, { budgetBytesOf }: CheckContext): Promise<string[]> {
  const primaries = cluster.nodes('master').map(async (node) => {
    const name = nameNode(node);
    return (await findProblems(node, budgetBytesOf(name))).map((problem) => `${name} ${problem}`);
  });
  const replicas = cluster.nodes('slave').map(async (node) => findReplicaProblems(node));
  return (await Promise.all([...primaries, ...replicas])).flat();
}

async function findReplicatedProblems(primary: Redis, context: CheckContext): Promise<string[]> {
  const problems = await findProblems(primary, context.budgetBytesOf(''));
  const replication = await primary.info('replication');
  for (const [, host = '', port = ''] of replication.matchAll(/^slave\d+:ip=([^,]+),port=(\d+)/gm)) {
    const replica = context.openReplica({ host, port: Number(port) });
    problems.push(...(await findReplicaProblems(replica).finally(() => context.close(replica))));
  }
  return problems;
}

/** None for a replica that cannot be reached from here. */
async function findReplicaProblems(replica: Redis): Promise<string[]> {
  try {
    return (await findProblems(replica, 0)).map((problem) => `replica ${nameNode(replica)} ${problem}`);
  } catch {
    return [];
  }
}

async function findProblems(server: Redis, budgetBytes: number): Promise<string[]> {
  const version = /redis_version:(\d+)/.exec(await server.info('server'))?.[1] ?? '0';
  const problems: string[] = [];
  if (Number(version) < REDIS_MAJOR_MIN)
    problems.push(`version: expected ${REDIS_MAJOR_MIN} or newer, got ${version}`);
  for (const [name, rule] of Object.entries(REQUIRED)) {
    const answer: unknown = await server.config('GET', name);
    const value = Array.isArray(answer) ? String(answer[1]) : 'nothing';
    if (name === 'maxmemory' && Number(value) > 0 && budgetBytes > Number(value) * BUDGET_SHARE_MAX) {
      problems.push(
        `maxmemory: expected REDIS_BUDGET_BYTES (${budgetBytes}) to be at most 60 % of it, got ${value}`,
      );
    }
    if (!rule.holds(value)) problems.push(`${name}: expected ${rule.wanted}, got ${value}`);
  }
  return problems;
}
