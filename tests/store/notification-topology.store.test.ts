import type { RedisSettings } from '@logpond/db/connect';
import { connectRedis } from '@logpond/db/connect';
import { NotificationGroups, notificationPrefix } from '@logpond/db/notification-group';
import type { Outcome } from '@logpond/db/notification-job';
import { NotificationQueue } from '@logpond/db/notification-queue';
import { expect, it } from 'vitest';
import { ClusterTopology, SentinelTopology } from '../system/support/redis-topology.ts';
import type { RedisServer } from '../system/support/redis-topology.ts';
import { waitFor } from '../support/wait.ts';
import { makeJob, makeRule } from './notification-fixture.ts';

const FAILOVER_MS_MAX = 60_000;
const QUICK = { concurrency: 5, onError: () => {}, pauseBeforeRetry: () => 20 };

type Topology = AsyncDisposable & { env: Readonly<Record<string, string>> };

function readSettings({ env }: Topology): RedisSettings {
  return {
    REDIS_URL: env['REDIS_URL'] ?? '',
    REDIS_MODE: env['REDIS_MODE'] === 'cluster' ? 'cluster' : 'sentinel',
    REDIS_SENTINEL_NAME: env['REDIS_SENTINEL_NAME'] ?? 'mymaster',
    KEY_PREFIX: 'lp',
    SHARDS: 3,
    REDIS_BUDGET_BYTES: 268_435_456,
  };
}

async function kill({ process }: RedisServer): Promise<void> {
  const gone = new Promise((resolve) => process.child.once('exit', resolve));
  process.child.kill('SIGKILL');
  await gone;
}

/** Retries and delays, groups, and a primary that dies: nothing is lost. @returns how many jobs were worked on. */
async function proveThatItWorks(topology: Topology, primary: () => Promise<RedisServer>): Promise<number> {
  await using stack = new AsyncDisposableStack();
  const settings = readSettings(topology);
  const queue = stack.use(await NotificationQueue.open(settings));
  const seen = new Map<string, number>();
  stack.use(
    await queue.work(async (job, { number }): Promise<Outcome> => {
      const id = job.kind === 'notification' ? job.notification.id : job.kind;
      seen.set(id, number);
      return number < 2 ? { kind: 'retry', reason: 'once more' } : { kind: 'done' };
    }, QUICK),
  );
  const before = Array.from({ length: 5 }, (_, repeat) => makeJob(makeRule(), { repeat }));
  await queue.add(before);
  await waitFor('two attempts of each', () => before.every(({ id }) => seen.get(id) === 2));
  const redis = stack.use(await connectRedis(settings));
  const [job, other] = [makeJob(makeRule()), makeJob(makeRule())];
  const groups = new NotificationGroups(redis);
  const again = { ...other, firing: { ...other.firing, rule: job.firing.rule } };
  expect(await groups.claim(job, 1_000)).toEqual({ kind: 'send' });
  const joined = await groups.claim(again, 1_001);
  if (joined.kind !== 'join') throw new TypeError('expected to join');
  await groups.finish(job, true, 1_002);
  const group = { id: 'group-1', group: joined.group };
  expect(await groups.close(group, 100_000)).toMatchObject({ items: [{ id: again.id }] });
  await kill(await primary());
  const after = Array.from({ length: 5 }, (_, repeat) => makeJob(makeRule(), { repeat }));
  await waitFor('the successor to take jobs', async () => (await queue.add(after), true), FAILOVER_MS_MAX);
  await waitFor('two attempts of each', () => after.every(({ id }) => seen.get(id) === 2), FAILOVER_MS_MAX);
  return seen.size;
}

it('the queue works on a Redis Cluster, also when the node of its slot dies', async () => {
  await using topology = await ClusterTopology.open();
  const key = `${notificationPrefix('lp')}:mails:wait`;
  expect(await proveThatItWorks(topology, async () => topology.findPrimaryOf(key))).toBe(10);
  // Its only replica is the primary now.
  await using queue = await NotificationQueue.open({ ...readSettings(topology), REDIS_WAIT_REPLICAS: 1 });
  await expect(queue.add([makeJob(makeRule())])).rejects.toThrow('expected 1 replicas to hold the write');
}, 120_000);

it('the queue works behind Sentinels, also when the primary dies', async () => {
  await using topology = await SentinelTopology.open();
  await using queue = await NotificationQueue.open({ ...readSettings(topology), REDIS_WAIT_REPLICAS: 2 });
  await queue.add([makeJob(makeRule())]);
  // One more: that of this queue.
  expect(await proveThatItWorks(topology, async () => topology.waitForPrimary(1))).toBe(11);
}, 120_000);
