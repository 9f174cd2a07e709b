import type { RedisStore } from './connect.ts';
import { askRedis } from './connect.ts';
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
  const { state } = shardKeys(redis.prefix, shard);
  const [epoch, next] = await askRedis(redis.client.hmget(state, 'epoch', 'next'));
  return { epoch: Number(epoch ?? 0), next: Number(next ?? 1) };
}
