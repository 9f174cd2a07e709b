import { shardOf } from '@logpond/db/shard-map';

const PREFIX = '10900d00-0000-8000-8000-';
/** One in `shards` ids fits (24 at most), so this many tries do. */
const TRIES_MAX = 10_000;

/** The system project of a shard: always the same, listed nowhere, and nobody's. */
export function canaryProjectOf(shard: number, shards: number): string {
  for (let number = 0; number < TRIES_MAX; number += 1) {
    const projectId = `${PREFIX}${number.toString(16).padStart(12, '0')}`;
    if (shardOf(projectId, shards) === shard) return projectId;
  }
  throw new RangeError(`expected a shard from 0 to ${shards - 1}, got ${shard}`);
}

/** Whether a project is one of those. */
export function isCanaryProject(projectId: string): boolean {
  return projectId.startsWith(PREFIX);
}
