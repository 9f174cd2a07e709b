import { evaluateShard } from '@logpond/alert-worker/evaluator';
import { openShard } from '@logpond/alert-worker/shard-owner';
import type { AlertDeps, AlertShard } from '@logpond/alert-worker/shard';
import { encodeRuns, errors, makeRule, NOW_S, PROJECT } from '@logpond/alert-worker/rule.test-support';
import { AlertCursor } from '@logpond/db/alert-cursor';
import { AlertHistory } from '@logpond/db/alert-history';
import { AlertRules } from '@logpond/db/alert-rules';
import type { OutboxItem } from '@logpond/db/alert-windows';
import { connectClickHouse } from '@logpond/db/clickhouse';
import type { RedisStore } from '@logpond/db/connect';
import { ControlStore } from '@logpond/db/control-store';
import type { Ownership } from '@logpond/db/log-cursor';
import type { LogStream } from '@logpond/db/log-stream';
import { RuleStream } from '@logpond/db/rule-stream';
import { shardKeys } from '@logpond/db/shard-map';
import { createLog } from '@logpond/runtime/log';
import { waitFor } from '../support/wait.ts';
import { forceOwnership } from './stream-fixture.ts';

/**
 * What happens to a count: `lost` never arrives; `cut` is carried out, but the answer is lost; after `killed` (before
 * it is carried out) and `dead` (after) the owner does nothing more, as a process that is killed there.
 */
export type CountFault = 'none' | 'lost' | 'cut' | 'killed' | 'dead';

type OwnerOptions = {
  /** Asked for each count that is sent. */
  faults?: () => CountFault;
  deps?: Partial<AlertDeps>;
  ownership?: Ownership;
};

/** The owner of shard 0 in this process, evaluating until it is stopped. */
export class Owner {
  readonly shard: AlertShard;
  /** Settles when the evaluator has ended. */
  readonly ended: Promise<void>;
  readonly #controller: AbortController;

  private constructor(shard: AlertShard, controller: AbortController) {
    this.shard = shard;
    this.#controller = controller;
    this.ended = evaluateShard(shard).catch((error: unknown) => {
      // A fault that is there to end it looks like a store that failed while stopping.
      if (!controller.signal.aborted) throw error;
    });
    this.ended.catch(() => {});
  }

  /** Takes the shard from whoever has it. The rules' clock stands still where the last entry was received. */
  static async take(redis: RedisStore, options: OwnerOptions = {}): Promise<Owner> {
    const ownership = options.ownership ?? (await forceOwnership(redis, 'alert'));
    const controller = new AbortController();
    const { signal } = controller;
    const cursor = await AlertCursor.open(redis, ownership);
    signal.addEventListener('abort', () => cursor[Symbol.dispose](), { once: true });
    const faults = options.faults ?? ((): CountFault => 'none');
    const log = createLog('test', 'silent');
    const deps = {
      ...makeDeps(redis),
      redis: disturbScripts(redis, faults, () => controller.abort()),
      ...options.deps,
    };
    return new Owner(await openShard({ ownership, deps, cursor, log, signal }), controller);
  }

  async stop(): Promise<void> {
    this.#controller.abort();
    await this.ended;
  }
}

/** With a queue that must not be used and a ClickHouse that is not there. */
export function makeDeps(redis: RedisStore): AlertDeps {
  const clickhouse = connectClickHouse({
    CLICKHOUSE_URL: 'http://127.0.0.1:9',
    CLICKHOUSE_USER: 'default',
    CLICKHOUSE_PASSWORD: '',
    CLICKHOUSE_DATABASE: 'default',
    CLICKHOUSE_PROJECT_SETTING: 'log_comment',
  });
  const ruleStream = new RuleStream(redis);
  return {
    redis,
    queue: {
      add: async () => {
        throw new Error('expected no relay in this test');
      },
    },
    history: new AlertHistory(clickhouse),
    rules: new AlertRules(new ControlStore(redis), { stream: ruleStream, shards: redis.shards }),
    ruleStream,
    log: createLog('test', 'silent'),
    now: Date.now,
    elapsedMs: () => 0,
    rulePollMs: 50,
  };
}

/** The store with a line to Redis on which scripts may be lost, or their answers. */
function disturbScripts(redis: RedisStore, nextFault: () => CountFault, kill: () => void): RedisStore {
  const { client } = redis;
  const evalsha = async (...args: Parameters<typeof client.evalsha>): Promise<unknown> => {
    const fault = nextFault();
    if (fault === 'killed' || fault === 'dead') kill();
    if (fault === 'killed' || fault === 'lost') throw new Error('Connection is closed.');
    const answer = await client.evalsha(...args);
    if (fault === 'dead' || fault === 'cut') throw new Error('Connection is closed.');
    return answer;
  };
  return overlay(redis, { client: overlay(client, { evalsha }) });
}

/** The same object with other members; its own keep working on itself. */
function overlay<T extends object>(target: T, members: { readonly [Name in keyof T]?: unknown }): T {
  return new Proxy(target, {
    get(own, name) {
      if (name in members) return members[name as keyof T];
      const value: unknown = Reflect.get(own, name, own);
      return typeof value === 'function' ? (value.bind(own) as unknown) : value;
    },
  });
}

/** Errors of one request, received `after` seconds after NOW_S; their time is `age` seconds before that. */
export async function sendErrors(
  stream: LogStream,
  count: number,
  after = 0,
  { projectId = PROJECT, age = 0 }: { projectId?: string; age?: number } = {},
): Promise<void> {
  const receivedSecond = NOW_S + after;
  const run = { projectId, second: receivedSecond - age, receivedSecond, entries: errors(count) };
  const admission = await stream.admit(0, encodeRuns([run]));
  if (admission.kind !== 'stored') throw new Error(`expected the block stored, got ${admission.kind}`);
}

/** Waits until all entries and changes in the stream are counted. */
export async function settle(redis: RedisStore): Promise<void> {
  const { state } = shardKeys(redis.prefix, 0);
  const fields = ['alert:done', 'next', 'alert:controls', 'controls'] as const;
  await waitFor('everything counted', async () => {
    const [done, next, seen, controls] = await redis.client.hmget(state, ...fields);
    return (done ?? '1') === next && (seen ?? '0') === (controls ?? '0');
  });
}

export async function readOutbox(redis: RedisStore): Promise<OutboxItem[]> {
  const texts = await redis.client.lrange(shardKeys(redis.prefix, 0).outbox, 0, -1);
  return texts.map((text) => JSON.parse(text) as OutboxItem);
}

/** Entries that a rule has counted since it began anew. */
export async function readCounted(redis: RedisStore, ruleId = makeRule().id): Promise<number> {
  return Number(await redis.client.hget(shardKeys(redis.prefix, 0).window(ruleId), 'counted'));
}
