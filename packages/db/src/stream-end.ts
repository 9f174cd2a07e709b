import type { RedisStore } from './connect.ts';
import { mapRedisError } from './connect.ts';
import { shardKeys } from './shard-map.ts';

/**
 * Where a shard's stream stands: the epoch that new entries belong to, and the offset that the next one gets (what
 * lies between a cursor and it waits).
 *
 * @throws {StoreError} `unavailable`.
 */
export async function readStreamEnd(
  redis: RedisStore,
  shard: number,
): Promise<{ epoch: number; next: number }> {
  try {
    const [epoch, next] = await redis.client.hmget(shardKeys(redis.prefix, shard).state, 'epoch', 'next');
    return { epoch: Number(epoch ?? 0), next: Number(next ?? 1) };
  } catch (error) {
    throw mapRedisError(error);
  }
}
