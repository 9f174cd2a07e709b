import type { RedisStore } from './connect.ts';
import { mapRedisError } from './connect.ts';
import { shardKeys } from './shard-map.ts';

/** The offset that the next entry of a shard gets: what lies between a cursor and it waits. @throws {StoreError} `unavailable`. */
export async function readStreamEnd(redis: RedisStore, shard: number): Promise<number> {
  try {
    return Number((await redis.client.hget(shardKeys(redis.prefix, shard).state, 'next')) ?? 1);
  } catch (error) {
    throw mapRedisError(error);
  }
}
