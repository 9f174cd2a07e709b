import { decodeSeq } from '@logpond/log-block/entry-id';
import { expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { makeBlock, numbered, WorkerRig } from './ingest-worker-fixture.ts';

it('the stream is trimmed also while ClickHouse is away', async () => {
  await using rig = await WorkerRig.start();
  const { client } = rig.redis;
  // No alert worker runs here; what it has not seen would be kept.
  await client.hset(rig.keys.state, 'alert:done', 1_000);
  const projectId = await rig.createProject();
  await using worker = rig.startWorker();
  await rig.send(makeBlock([{ projectId, messages: numbered(10) }]));
  await rig.settle();
  await rig.stores.clickhouse.stop();
  const second = await rig.send(makeBlock([{ projectId, messages: numbered(10) }]));
  await waitFor('a failed insert', () => worker.output().includes('"step":"insert"'));
  // As if what was stored before had come an hour ago.
  const [, , bytes = ''] = ((await client.lindex(rig.keys.marks, 0)) ?? '').split(' ');
  await client.lset(rig.keys.marks, 0, `${second} ${Date.now() - 3_600_000} ${bytes}`);
  await waitFor('the first block trimmed', async () => (await client.xlen(rig.keys.log)) === 1);
  expect((await client.xrange(rig.keys.log, '-', '+')).map(([id]) => id)).toEqual([`${second}-0`]);
});

it('F56: a canary is stored each interval, once, and is missed while ClickHouse is away', async () => {
  await using rig = await WorkerRig.start();
  await using worker = rig.startWorker({ CANARY_INTERVAL_MS: '1000' });
  const sql = `SELECT count() AS rows, uniqExact(seq) AS distinct FROM logs WHERE message = 'canary'`;
  const counted = await waitFor('two canaries', async () => {
    const [row] = await rig.clickhouse.readInternal<{ rows: string; distinct: string }>(sql);
    return Number(row?.rows) >= 2 ? row : undefined;
  });
  expect(counted.rows).toBe(counted.distinct);
  await rig.stores.clickhouse.stop();
  await waitFor('the canary missed', () => worker.output().includes('the canary is missing'));
});

it('a shard whose dead letters are full stands still and says so, until there is room', async () => {
  await using rig = await WorkerRig.start();
  const { client } = rig.redis;
  await rig.clickhouse.command(`ALTER TABLE logs ADD CONSTRAINT harmless CHECK message != 'poison'`);
  const projectId = await rig.createProject();
  const full = 16_777_216;
  await client.hset(rig.keys.state, 'deadBytes', full);
  await rig.send(makeBlock([{ projectId, messages: ['good', 'poison'] }]));
  await using worker = rig.startWorker();
  await waitFor('the wait said', () => worker.output().includes('among the dead letters of shard 0'));
  expect(await client.hget(rig.keys.state, 'ingest:plan')).not.toBeNull();
  await client.hincrby(rig.keys.state, 'deadBytes', -full);
  await rig.settle();
  expect(await rig.messages(projectId)).toEqual(['good']);
});

it('a Redis that was restored from an older copy stores what it holds once, and goes on in the next epoch', async () => {
  await using rig = await WorkerRig.start();
  const { client } = rig.redis;
  const projectId = await rig.createProject();
  await rig.send(makeBlock([{ projectId, messages: numbered(10, 'copied') }]));
  await rig.runUntilKilled('W6.before:kill');
  const kept = [rig.keys.state, rig.keys.log];
  const copies = await Promise.all(kept.map(async (key) => client.dumpBuffer(key)));
  {
    await using _worker = rig.startWorker();
    await rig.send(makeBlock([{ projectId, messages: numbered(10, 'lost with Redis') }]));
    await rig.settle();
  }
  for (const [index, key] of kept.entries())
    await client.restore(key, 0, copies[index] ?? Buffer.alloc(0), 'REPLACE');
  await client.hset(rig.keys.state, 'run', 'another');
  await client.del(rig.keys.lease('ingest'));
  await using _worker = rig.startWorker();
  const block = makeBlock([{ projectId, messages: numbered(10, 'new') }]);
  const offset = await waitFor('the next epoch', async () => rig.send(block));
  await rig.settle();
  expect(await rig.count(projectId)).toMatchObject({ rows: 30, distinct: 30 });
  const sql = `SELECT toString(seq) AS seq FROM logs WHERE message = 'new 0'`;
  const [row] = await rig.clickhouse.readInternal<{ seq: string }>(sql);
  expect(decodeSeq(BigInt(row?.seq ?? '0'))).toEqual({ epoch: 2, offset });
});
