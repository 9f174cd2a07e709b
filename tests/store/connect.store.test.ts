import { join } from 'node:path';
import { connectRedis } from '@logpond/db/connect';
import { spawnRedis } from '@logpond/standalone/redis';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { StreamFixture } from './stream-fixture.ts';

let fixture: StreamFixture;

beforeAll(async () => {
  fixture = await StreamFixture.open();
});
afterAll(async () => fixture[Symbol.asyncDispose]());

describe('a start', () => {
  let loose: Awaited<ReturnType<typeof spawnRedis>>;
  beforeAll(async () => {
    loose = await spawnRedis({ dataDir: join(fixture.dataDir, 'loose') });
  });
  // A Redis whose append-only file was switched on a moment ago does not obey SIGTERM.
  afterAll(() => void loose.child.kill('SIGKILL'));

  it.each([
    ['appendfsync', 'everysec', 'always'],
    ['no-appendfsync-on-rewrite', 'yes', 'no'],
    ['maxmemory-policy', 'allkeys-lru', 'noeviction'],
    ['maxmemory', '0', '2147483648'],
    ['auto-aof-rewrite-min-size', '67108864', '1073741824'],
    ['appendonly', 'no', 'yes'],
  ])('refuses a Redis with %s %s', async (name, value, right) => {
    const client = new Redis(loose.url);
    await client.config('SET', name, value);
    await expect(connectRedis({ ...fixture.settings(), REDIS_URL: loose.url })).rejects.toThrow(
      `${name}: expected`,
    );
    await client.config('SET', name, right);
    client.disconnect();
  });

  it('refuses a Redis whose memory is too small for the budget', async () => {
    const tight = { ...fixture.settings(2_000_000_000), REDIS_URL: loose.url };
    await expect(connectRedis(tight)).rejects.toThrow('maxmemory: expected REDIS_BUDGET_BYTES (2000000000)');
  });
});
