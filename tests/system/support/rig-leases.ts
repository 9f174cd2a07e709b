import type { Redis } from 'ioredis';
import { shardKeys } from '@logpond/db/shard-map';
import type { Consumer } from '@logpond/db/shard-map';
import { KEY_PREFIX } from './rig-state.ts';

/** Lets all leases and signs of life of a consumer's workers run out now. */
export async function expireLeases(redis: Redis, shards: number, consumer: Consumer): Promise<void> {
  for (let shard = 0; shard < shards; shard += 1) {
    await redis.del(shardKeys(KEY_PREFIX, shard).lease(consumer));
  }
  await redis.del(`${KEY_PREFIX}:{cp}:workers:${consumer}`);
}
