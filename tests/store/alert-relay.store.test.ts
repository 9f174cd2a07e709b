import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { writeHistory } from '@logpond/alert-worker/history-writer';
import { makeJobs } from '@logpond/alert-worker/relay';
import { makeRule, NOW_S, PROJECT } from '@logpond/alert-worker/rule.test-support';
import { ownShard } from '@logpond/alert-worker/shard-owner';
import type { AlertDeps } from '@logpond/alert-worker/shard';
import { AlertHistory } from '@logpond/db/alert-history';
import type { HistoryRow } from '@logpond/db/alert-history';
import { AlertRules } from '@logpond/db/alert-rules';
import { pushHistory } from '@logpond/db/alert-windows';
import { connectClickHouse } from '@logpond/db/clickhouse';
import type { RedisStore } from '@logpond/db/connect';
import { ControlStore } from '@logpond/db/control-store';
import type { LogStream } from '@logpond/db/log-stream';
import { NotificationQueue } from '@logpond/db/notification-queue';
import { RuleStream } from '@logpond/db/rule-stream';
import { shardKeys } from '@logpond/db/shard-map';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { makeDeps, Owner, readCounted, readOutbox, sendErrors, settle } from './alert-evaluator-fixture.ts';
import { createProject, operator } from './control-plane-fixture.ts';
import { startEngine } from './log-store-fixture.ts';
import type { TestEngine } from './log-store-fixture.ts';
import { beginEachTest, forceOwnership } from './stream-fixture.ts';
import type { StreamFixture } from './stream-fixture.ts';

let fixture: StreamFixture;
let redis: RedisStore;
let stream: LogStream;
let queue: NotificationQueue;
let engine: TestEngine;

beginEachTest((begun) => ({ fixture, redis, stream } = begun));
beforeAll(async () => {
  engine = await startEngine();
});
afterAll(async () => engine.stop());
beforeEach(async () => {
  queue = await NotificationQueue.open(fixture.settings());
  return async () => queue[Symbol.asyncDispose]();
});

const RULE = makeRule({
  // No firing ends while the test runs.
  condition: { ...makeRule().condition, timeWindow: '1h' },
  notifications: [
    { type: 'email', config: { recipients: ['a@example.com', 'b@example.com'] } },
    { type: 'webhook', config: { url: 'https://example.com/hook' } },
  ],
});
/** These rules are only in the stream: compared with the control plane they would be taken for deleted. */
const NEVER_MS = 3_600_000;
const TARGETS = ['a@example.com', 'b@example.com', 'https://example.com/hook'];

/** Owns shard 0 with all that belongs to it, until it is stopped. */
async function startOwner(deps: Partial<AlertDeps> = {}): Promise<{ stop: () => Promise<void> }> {
  const controller = new AbortController();
  const ownership = await forceOwnership(redis, 'alert');
  const ended = ownShard(
    ownership,
    { ...makeDeps(redis), rulePollMs: NEVER_MS, queue, ...deps },
    controller.signal,
  );
  ended.catch(() => {});
  return {
    stop: async () => {
      controller.abort();
      await ended;
    },
  };
}

/** A consumer of the queue; `sent` are the targets it was given, in order. */
async function startConsumer(): Promise<AsyncDisposable & { sent: string[] }> {
  const sent: string[] = [];
  const work = await queue.work(
    async (job) => {
      if (job.kind === 'notification') sent.push(job.notification.target);
      return { kind: 'done' };
    },
    { concurrency: 1, onError: () => {} },
  );
  return { sent, [Symbol.asyncDispose]: async () => work[Symbol.asyncDispose]() };
}

describe('the owner of a shard', () => {
  it('a firing reaches the queue while ClickHouse is away, and the history when it is back', async () => {
    const nowMs = Date.now();
    const away = await startOwner();
    await new RuleStream(redis).publish({ op: 'put', rule: RULE });
    await sendErrors(stream, 3, Math.floor(nowMs / 1_000) - NOW_S);
    await using consumer = await startConsumer();
    await waitFor('the notifications', () => consumer.sent.length === 3);
    expect(consumer.sent.toSorted()).toEqual(TARGETS);
    await waitFor('an empty outbox', async () => (await readOutbox(redis)).length === 0);
    expect(await redis.client.llen(shardKeys(redis.prefix, 0).history)).toBe(1);
    await away.stop();

    const history = new AlertHistory(engine.store);
    const owner = await startOwner({ history });
    const {
      history: [firing, ...more],
    } = await waitFor('the history', async () => {
      const page = await history.list(PROJECT, { limit: 10 });
      return page.history.length > 0 && page;
    });
    expect(more).toEqual([]);
    expect(firing).toMatchObject({
      ruleId: RULE.id,
      ruleName: RULE.name,
      count: 3,
      threshold: 3,
      resolvedAt: null,
    });
    const key = shardKeys(redis.prefix, 0).history;
    await waitFor('no more rows to wait', async () => (await redis.client.llen(key)) === 0);
    await owner.stop();
  });

  it('a notification that a killed owner had put into the queue already is sent once', async () => {
    const evaluator = await Owner.take(redis);
    await new RuleStream(redis).publish({ op: 'put', rule: RULE });
    await sendErrors(stream, 3);
    await settle(redis);
    await evaluator.stop();
    const items = await evaluator.shard.windows.readOutbox(10);
    await queue.add(items.flatMap(({ item }) => makeJobs(item)));
    await using consumer = await startConsumer();
    await waitFor('the notifications', () => consumer.sent.length === 3);
    const owner = await startOwner();
    await waitFor('an empty outbox', async () => (await readOutbox(redis)).length === 0);
    // What comes behind it in the queue has come: the others would have, too.
    await new RuleStream(redis).publish({
      op: 'put',
      rule: makeRule({ ...RULE, version: 2, generation: 2 }),
    });
    await sendErrors(stream, 3, 5);
    await waitFor('the next notifications', () => consumer.sent.length === 6);
    expect(consumer.sent.slice(3).toSorted()).toEqual(TARGETS);
    await owner.stop();
  });
});

/** A way to the engine on which the first `silent` connections are taken and never answered. */
async function startHanging(
  silent: number,
): Promise<AsyncDisposable & { history: AlertHistory; taken: () => number }> {
  const { hostname, port } = new URL(engine.settings.CLICKHOUSE_URL);
  const sockets = new Set<Socket>();
  let taken = 0;
  const server = createServer((socket) => {
    taken += 1;
    const all = taken <= silent ? [socket] : [socket, connect(Number(port), hostname)];
    for (const one of all) sockets.add(one.on('error', () => {}));
    all[1]?.pipe(socket).pipe(all[1]);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const CLICKHOUSE_URL = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const store = connectClickHouse({ ...engine.settings, CLICKHOUSE_URL });
  return {
    history: new AlertHistory(store),
    taken: () => taken,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await store[Symbol.asyncDispose]();
    },
  };
}

describe('a ClickHouse that hangs', () => {
  const makeRow = (): HistoryRow => {
    const startedAtMs = Math.floor(Date.now() / 1_000) * 1_000;
    const counts = { count: 3, threshold: 3, timeWindow: '10s', version: 1 };
    const names = { projectId: PROJECT, ruleId: RULE.id, ruleName: RULE.name, firingId: randomUUID() };
    return { type: 'firing', ...names, startedAtMs, resolvedAtMs: null, ...counts };
  };

  it('does not keep a shard that is to be given back, and its rows are written by the next owner', async () => {
    await using hanging = await startHanging(Infinity);
    const row = makeRow();
    await pushHistory(redis, PROJECT, [row]);
    const owner = await startOwner({ history: hanging.history });
    await waitFor('the insert', () => hanging.taken() > 0);
    // The connection of an insert is given up after 300 s.
    await owner.stop();
    const { history: key } = shardKeys(redis.prefix, 0);
    expect(await redis.client.llen(key)).toBe(1);
    const next = await startOwner({ history: new AlertHistory(engine.store) });
    await waitFor('no more rows to wait', async () => (await redis.client.llen(key)) === 0);
    await next.stop();
    expect(await listFirings()).toContain(row.firingId);
  });

  it('is asked again after a while', async () => {
    await using hanging = await startHanging(1);
    const row = makeRow();
    await pushHistory(redis, PROJECT, [row]);
    const controller = new AbortController();
    const owner = await Owner.take(redis, { deps: { history: hanging.history } });
    const shard = { ...owner.shard, signal: controller.signal };
    const written = writeHistory(shard, { insertTimeoutMs: 200 });
    const { history: key } = shardKeys(redis.prefix, 0);
    await waitFor('no more rows to wait', async () => (await redis.client.llen(key)) === 0);
    controller.abort();
    await written;
    await owner.stop();
    expect(hanging.taken()).toBeGreaterThan(1);
    expect(await listFirings()).toContain(row.firingId);
  });
});

async function listFirings(): Promise<string[]> {
  const { history } = await new AlertHistory(engine.store).list(PROJECT, { limit: 100 });
  return history.map(({ id }) => id);
}

describe('the comparison with the control plane', () => {
  it('brings a rule, its change and its end, of which the stream was never told', async () => {
    // What is published there is lost, as by an API that is killed before it tells the stream.
    const elsewhere = await fixture.begin();
    const control = new ControlStore(redis);
    const rules = new AlertRules(control, { stream: new RuleStream(elsewhere.redis), shards: 1 });
    const { projectId } = await createProject(control);
    const { name, enabled, condition, notifications } = makeRule();
    const draft = { name, enabled, condition, notifications };
    const { id: ruleId } = await rules.create(operator, projectId, draft);
    const owner = await startOwner({ rulePollMs: 50 });
    const isInForce = async (text: string): Promise<boolean> =>
      ((await redis.client.hget(shardKeys(redis.prefix, 0).rules, ruleId)) ?? '').includes(text);
    await waitFor('the rule', async () => isInForce('many errors'));
    await sendErrors(stream, 2, 0, { projectId });
    await settle(redis);
    expect(await readCounted(redis, ruleId)).toBe(2);
    await rules.update(operator, projectId, ruleId, (rule) => ({ ...rule, name: 'renamed' }));
    await waitFor('the change', async () => isInForce('renamed'));
    await rules.remove(operator, projectId, ruleId);
    const key = shardKeys(redis.prefix, 0).rules;
    await waitFor('the end', async () => (await redis.client.exists(key)) === 0);
    await owner.stop();
    await elsewhere.redis[Symbol.asyncDispose]();
  });
});
