import { crc32 } from 'node:zlib';

/**
 * The hash tags of the shards. All keys of a shard carry its tag, so that each script runs on one node.
 * They were picked by their Redis Cluster slot: each lies near the middle of another 1/24 of the 16,384
 * slots, so equal slot ranges of 3, 4, 6, 8 or 12 masters hold equal numbers of 24 shards.
 */
export const SHARD_TAGS = [
  'sg',
  'mg',
  'md',
  'sd',
  'ei',
  'dq',
  'tk',
  'us',
  'bq',
  'ci',
  'ss',
  'rk',
  'wk',
  'vs',
  'fi',
  'gq',
  'ps',
  'qk',
  'aq',
  'oh',
  'ye',
  'hd',
  'hg',
  'yf',
] as const;

/** The part of the pipeline that reads a stream with a cursor of its own. */
export const CONSUMERS = ['ingest', 'alert'] as const;
export type Consumer = (typeof CONSUMERS)[number];

/** The shard of a project, for ever the same while the number of shards is. */
export function shardOf(projectId: string, shards: number): number {
  return crc32(projectId) % shards;
}

/** Holds the number of shards that the streams were begun with. */
export function shardCountKey(prefix: string): string {
  return `${prefix}:{cp}:log-shards`;
}

/** The keys of one shard (docs/architecture.md has the table). */
export type ShardKeys = {
  log: string;
  state: string;
  marks: string;
  backlog: string;
  audits: string;
  tailed: string;
  tailChannel: string;
  /** The alert rules in force at the alert worker's cursor. */
  rules: string;
  /** What a rule has counted and whether it fires; with '' the part that all rules have in common. */
  window: (ruleId: string) => string;
  /** Notifications that are not in the queue yet. */
  outbox: string;
  /** Firings and deliveries that are not in ClickHouse yet. */
  history: string;
  lease: (consumer: Consumer) => string;
  idempotency: (projectId: string, keyHash: string) => string;
  /** A project's dead letters: their ids in order, what they are, and their entries. '-' for no project. */
  dead: (projectId: string) => { order: string; letters: string; payloads: string };
};

/** Names the keys of a shard. @throws {RangeError} for a shard outside the table of tags. */
export function shardKeys(prefix: string, shard: number): ShardKeys {
  const tag = SHARD_TAGS[shard];
  if (tag === undefined)
    throw new RangeError(`expected a shard from 0 to ${SHARD_TAGS.length - 1}, got ${shard}`);
  const base = `${prefix}:{${tag}}`;
  return {
    log: `${base}:log`,
    state: `${base}:state`,
    marks: `${base}:marks`,
    backlog: `${base}:backlog`,
    audits: `${base}:audits`,
    tailed: `${base}:tailed`,
    tailChannel: `${base}:tail`,
    rules: `${base}:rules`,
    window: (ruleId) => `${base}:window:${ruleId}`,
    outbox: `${base}:outbox`,
    history: `${base}:history`,
    lease: (consumer) => `${base}:lease:${consumer}`,
    idempotency: (projectId, keyHash) => `${base}:idem:${projectId}:${keyHash}`,
    dead: (projectId) => ({
      order: `${base}:dead:${projectId}:order`,
      letters: `${base}:dead:${projectId}:letters`,
      payloads: `${base}:dead:${projectId}:payloads`,
    }),
  };
}
