import { makeRule, NOW_S, OTHER, PROJECT } from '@logpond/alert-worker/rule.test-support';
import { readRuleStates } from '@logpond/db/alert-windows';
import type { RedisStore } from '@logpond/db/connect';
import type { LogStream } from '@logpond/db/log-stream';
import type { RuleChange } from '@logpond/db/rule-change';
import { RuleStream } from '@logpond/db/rule-stream';
import { shardKeys } from '@logpond/db/shard-map';
import { describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { Owner, readCounted, readOutbox, sendErrors, settle } from './alert-evaluator-fixture.ts';
import { beginEachTest, forceOwnership } from './stream-fixture.ts';

let redis: RedisStore;
let stream: LogStream;

beginEachTest((begun) => ({ redis, stream } = begun));

const RULE = makeRule();

async function publish(change: RuleChange): Promise<void> {
  await new RuleStream(redis).publish(change);
}

describe('the evaluator', () => {
  it('a rule counts what is admitted after its change, to the entry, and what was admitted before the next', async () => {
    const owner = await Owner.take(redis);
    await sendErrors(stream, 7);
    await publish({ op: 'put', rule: RULE });
    await sendErrors(stream, 2);
    await settle(redis);
    expect(await readCounted(redis)).toBe(2);
    await sendErrors(stream, 50, 0, { projectId: OTHER });
    await sendErrors(stream, 1);
    await settle(redis);
    expect(await readCounted(redis)).toBe(3);
    expect(await readOutbox(redis)).toMatchObject([{ kind: 'fired', count: 3, rule: RULE }]);
    expect(await readRuleStates(redis, PROJECT, [RULE.id])).toEqual(
      new Map([[RULE.id, { state: 'firing', lastTriggeredAt: new Date(NOW_S * 1_000).toISOString() }]]),
    );

    await publish({ op: 'put', rule: makeRule({ version: 2, generation: 2, enabled: false }) });
    await sendErrors(stream, 9);
    await settle(redis);
    expect(await readCounted(redis)).toBe(0);
    expect((await readOutbox(redis)).map(({ kind }) => kind)).toEqual(['fired', 'resolved']);
    await publish({ op: 'put', rule: makeRule({ version: 3, generation: 3 }) });
    await sendErrors(stream, 2);
    await settle(redis);
    expect(await readCounted(redis)).toBe(2);
    await publish({ op: 'delete', ruleId: RULE.id, projectId: PROJECT, version: 4 });
    await sendErrors(stream, 9);
    await settle(redis);
    expect(await redis.client.exists(shardKeys(redis.prefix, 0).window(RULE.id))).toBe(0);
    expect(await redis.client.exists(shardKeys(redis.prefix, 0).rules)).toBe(0);
    await owner.stop();
  });

  it('an owner that comes later meets each entry with the rules of its time', async () => {
    await sendErrors(stream, 1);
    await publish({ op: 'put', rule: RULE });
    await sendErrors(stream, 2);
    await publish({ op: 'put', rule: makeRule({ version: 2, name: 'renamed', threshold: 3 }) });
    await sendErrors(stream, 1);
    await publish({ op: 'delete', ruleId: RULE.id, projectId: PROJECT, version: 3 });
    await sendErrors(stream, 5);
    const owner = await Owner.take(redis);
    await settle(redis);
    expect(
      (await readOutbox(redis)).map(({ kind, count, rule }) => ({ kind, count, name: rule.name })),
    ).toEqual([
      { kind: 'fired', count: 3, name: 'renamed' },
      { kind: 'resolved', count: 3, name: 'renamed' },
    ]);
    await owner.stop();
  });

  it('nothing more is counted while 10,000 items wait in the outbox, and all of it when they are gone', async () => {
    const { outbox, state } = shardKeys(redis.prefix, 0);
    await publish({ op: 'put', rule: RULE });
    const owner = await Owner.take(redis);
    await settle(redis);
    await redis.client.rpush(outbox, ...Array.from({ length: 10_001 }, () => '{}'));
    // The step that follows finds out; it is still counted.
    await sendErrors(stream, 1);
    await settle(redis);
    await sendErrors(stream, 5);
    const isCounted = async (): Promise<boolean> => (await redis.client.hget(state, 'alert:done')) !== '2';
    await expect(waitFor('a count', isCounted, 1_000)).rejects.toThrow('a count');
    expect(await readCounted(redis)).toBe(1);
    await redis.client.ltrim(outbox, 1, 0);
    await settle(redis);
    expect(await readCounted(redis)).toBe(6);
    await owner.stop();
  });

  it('a half-full window goes on with the next owner', async () => {
    const first = await Owner.take(redis);
    await publish({ op: 'put', rule: RULE });
    await sendErrors(stream, 2);
    await settle(redis);
    await first.stop();
    const second = await Owner.take(redis);
    await sendErrors(stream, 1, 9);
    await settle(redis);
    expect(await readOutbox(redis)).toMatchObject([
      { kind: 'fired', count: 3, startedAtMs: (NOW_S + 9) * 1_000 },
    ]);
    await second.stop();
    // It fires already: nothing is told twice.
    const third = await Owner.take(redis);
    await sendErrors(stream, 5, 10);
    await settle(redis);
    expect(await readOutbox(redis)).toHaveLength(1);
    expect(await readCounted(redis)).toBe(8);
    await third.stop();
  });

  it('a count of an owner that was replaced changes nothing', async () => {
    const earlier = await forceOwnership(redis, 'alert', 'earlier');
    await publish({ op: 'put', rule: RULE });
    await sendErrors(stream, 3);
    const newer = await forceOwnership(redis, 'alert', 'newer');
    const replaced = await Owner.take(redis, { ownership: earlier });
    await replaced.ended;
    await replaced.stop();
    expect(await readCounted(redis)).toBe(0);
    expect(await readOutbox(redis)).toEqual([]);
    const owner = await Owner.take(redis, { ownership: newer });
    await settle(redis);
    expect(await readCounted(redis)).toBe(3);
    expect(await readOutbox(redis)).toHaveLength(1);
    await owner.stop();
  });

  it('while nothing matches only the place is written, and not for each block', async () => {
    let counts = 0;
    const owner = await Owner.take(redis, {
      faults: () => {
        counts += 1;
        return 'none';
      },
    });
    await publish({ op: 'put', rule: RULE });
    await settle(redis);
    counts = 0;
    const startedAt = performance.now();
    const { progress } = owner.shard;
    for (let block = 0; block < 15; block += 1) {
      const { done } = progress;
      await sendErrors(stream, 1, 0, { projectId: OTHER });
      await waitFor('the block evaluated', () => progress.done > done);
    }
    await settle(redis);
    expect(counts).toBeLessThanOrEqual(2 + (performance.now() - startedAt) / 1_000);
    await owner.stop();
  });

  it('a block that is damaged is stepped over', async () => {
    await publish({ op: 'put', rule: RULE });
    await sendErrors(stream, 1);
    const { log, state } = shardKeys(redis.prefix, 0);
    const next = Number(await redis.client.hget(state, 'next'));
    await redis.client.xadd(log, `${next}-0`, 'b', 'no block', 'd', '');
    await redis.client.hset(state, 'next', next + 4);
    await sendErrors(stream, 1);
    const owner = await Owner.take(redis);
    await settle(redis);
    expect(await readCounted(redis)).toBe(2);
    await owner.stop();
  });

  it('a block of an API whose clock is an hour ahead ends nothing that fires', async () => {
    const deps = { now: () => (NOW_S + 5) * 1_000 };
    const owner = await Owner.take(redis, { deps });
    await publish({ op: 'put', rule: RULE });
    await sendErrors(stream, 3);
    await waitFor('the firing', async () => (await readOutbox(redis)).length === 1);
    await sendErrors(stream, 1, 3_600, { projectId: OTHER });
    await settle(redis);
    // The clock ticks each second.
    await expect(waitFor('an end', async () => (await readOutbox(redis)).length > 1, 2_500)).rejects.toThrow(
      'an end',
    );
    await sendErrors(stream, 1, 10);
    await settle(redis);
    expect(await readCounted(redis)).toBe(4);
    await owner.stop();
  });

  it('time that passes without entries resolves and reminds, by the clock that stamped the entries', async () => {
    let elapsedMs = 0;
    const deps = { elapsedMs: () => elapsedMs, now: () => (NOW_S + 360_000) * 1_000 };
    const first = await Owner.take(redis, { deps });
    await publish({ op: 'put', rule: makeRule({ timeWindow: '1m', renotifyAfter: '30s' }) });
    await sendErrors(stream, 3);
    await waitFor('the firing', async () => (await readOutbox(redis)).length === 1);
    elapsedMs = 36_000;
    await waitFor('the reminder', async () => (await readOutbox(redis)).length === 2);
    await first.stop();
    // Nothing is received any more: time goes on from where the first owner left it.
    const second = await Owner.take(redis, { deps });
    elapsedMs = 80_000;
    await waitFor('the end', async () => (await readOutbox(redis)).length === 3);
    const told = (await readOutbox(redis)).map(({ kind, repeat, resolvedAtMs }) => ({
      kind,
      repeat,
      resolvedAtMs,
    }));
    expect(told).toEqual([
      { kind: 'fired', repeat: 0, resolvedAtMs: null },
      { kind: 'renotified', repeat: 1, resolvedAtMs: null },
      { kind: 'resolved', repeat: 0, resolvedAtMs: (NOW_S + 62) * 1_000 },
    ]);
    await second.stop();
  });
});
