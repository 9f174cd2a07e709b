import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { RedisStore } from './connect.ts';
import type { Ownership } from './log-cursor.ts';
import { readRanges } from './offset-range.ts';
import { RedisScript } from './redis-script.ts';
import { shardKeys } from './shard-map.ts';
import type { Consumer } from './shard-map.ts';

const ownScript = new RedisScript('log-stream.lua/own.lua');
const renewScript = new RedisScript('log-stream.lua/renew.lua');
const heartbeatScript = new RedisScript('log-stream.lua/heartbeat.lua');

const LEASE_TTL_MS = 3_000;
const TICK_MS = 1_000;
/** A ClickHouse that hangs must not keep a Redis that is back from being used. */
const WORK_END_MS_MAX = 30_000;

type Held = {
  controller: AbortController;
  work: Promise<void>;
  holder: string;
  renewedAtMs: number;
  isRenewing: boolean;
};

/**
 * Shares the shards among the living workers of a consumer.
 *
 * Once a second each worker renews its leases, says that it lives, gives shards back above its fair share
 * (`ceil(shards / living workers)`) and takes free ones below it. A killed worker's shards are free after 3 s. In a
 * cluster each of these questions may go to another server, so none waits for another. `work` runs for as long as a
 * shard is held; its signal is aborted when the lease is lost or given back, and a shard is given back only when its
 * work has ended.
 */
export class ShardLeases implements AsyncDisposable {
  readonly #redis: RedisStore;
  readonly #consumer: Consumer;
  readonly #work: (ownership: Ownership, signal: AbortSignal) => Promise<void>;
  readonly #onError: (error: unknown) => void;
  readonly #onUnprepared: (() => Promise<void>) | undefined;
  readonly #workerId = randomUUID();
  readonly #held = new Map<number, Held>();
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;
  #livingWorkers = 1;
  #balancing: Promise<void> | undefined;
  #preparing: Promise<void> | undefined;

  constructor(options: {
    redis: RedisStore;
    consumer: Consumer;
    /** Works on one shard until the signal is aborted; a failure gives the shard back. */
    work: (ownership: Ownership, signal: AbortSignal) => Promise<void>;
    /** Told of every failure of Redis or of `work`. */
    onError: (error: unknown) => void;
    /**
     * Prepares the shards (again): after each start of Redis, and while a shard is drained. Without it, another
     * consumer does.
     */
    onUnprepared?: () => Promise<void>;
  }) {
    this.#redis = options.redis;
    this.#consumer = options.consumer;
    this.#work = options.work;
    this.#onError = options.onError;
    this.#onUnprepared = options.onUnprepared;
  }

  /** Takes the first leases and goes on until closed. */
  start(): void {
    const tick = (): void => {
      for (const [shard, held] of this.#held) this.#keep(shard, held);
      this.#balancing ??= this.#balance()
        .catch(this.#onError)
        .finally(() => {
          this.#balancing = undefined;
        });
    };
    this.#timer = setInterval(tick, TICK_MS);
    tick();
  }

  /** Renews one lease. One that could not be renewed in time is lost, whether or not Redis can say so. */
  #keep(shard: number, held: Held): void {
    if (performance.now() - held.renewedAtMs > LEASE_TTL_MS) held.controller.abort();
    if (held.isRenewing) return;
    held.isRenewing = true;
    void this.#renew(shard, held)
      .catch(this.#onError)
      .finally(() => {
        held.isRenewing = false;
      });
  }

  async #renew(shard: number, held: Held): Promise<void> {
    const sentAtMs = performance.now();
    const keys = shardKeys(this.#redis.prefix, shard);
    const lease = keys.lease(this.#consumer);
    const args = [held.holder, LEASE_TTL_MS];
    const answer = await renewScript.run(this.#redis.client, [lease, keys.state], args);
    if (answer !== 'lost') held.renewedAtMs = sentAtMs;
    // What this owner remembers of the shard may be newer than a server that was restored: it is taken anew.
    if (answer === 'lost' || answer === 'unprepared') held.controller.abort();
    if (answer === 'unprepared' || answer === 'draining') this.#prepare();
  }

  /** Beside all else: it may have to wait for ClickHouse, and leases must be renewed meanwhile. */
  #prepare(): void {
    const onUnprepared = this.#onUnprepared;
    if (onUnprepared === undefined || this.#stopped) return;
    const prepare = async (): Promise<void> => {
      // An insert that is still under way would not be seen by the comparison.
      await Promise.allSettled([...this.#held].map(async ([shard, held]) => this.#renew(shard, held)));
      const ending = [...this.#held.values()].filter(({ controller }) => controller.signal.aborted);
      const ended = Promise.all(ending.map(async ({ work }) => work));
      await Promise.race([ended, delay(WORK_END_MS_MAX, undefined, { ref: false })]);
      await onUnprepared();
    };
    this.#preparing ??= prepare()
      .catch(this.#onError)
      .finally(() => {
        this.#preparing = undefined;
      });
  }

  /** Gives shards back above the fair share and takes free ones below it. */
  async #balance(): Promise<void> {
    try {
      this.#livingWorkers = await this.#heartbeat('stay');
    } catch (error) {
      this.#onError(error);
    }
    const share = Math.ceil(this.#redis.shards / Math.max(1, this.#livingWorkers));
    const surplus = this.#held.size - share;
    // The work's end gives the lease back.
    for (const [, held] of [...this.#held].slice(0, Math.max(0, surplus))) held.controller.abort();
    for (let shard = 0; shard < this.#redis.shards && this.#held.size < share; shard += 1) {
      if (!this.#stopped && !this.#held.has(shard)) await this.#take(shard).catch(this.#onError);
    }
  }

  async #heartbeat(mode: 'stay' | 'stop'): Promise<number> {
    const key = `${this.#redis.prefix}:{cp}:workers:${this.#consumer}`;
    return Number(await heartbeatScript.run(this.#redis.client, [key], [this.#workerId, LEASE_TTL_MS, mode]));
  }

  async #take(shard: number): Promise<void> {
    const keys = shardKeys(this.#redis.prefix, shard);
    // A new name for each taking: a lease that lapsed is never mistaken for the one taken after it.
    const holder = `${this.#workerId}:${randomUUID()}`;
    const sentAtMs = performance.now();
    const args = [this.#consumer, holder, LEASE_TTL_MS];
    const { client, waitReplicas } = this.#redis;
    // On the replicas before anything is inserted: with it whatever came before, such as a plan that was not confirmed.
    const places = [keys.lease(this.#consumer), keys.state];
    const answer = await ownScript.runReplicated(client, places, args, waitReplicas);
    const ownership = readOwnership(shard, answer);
    // A later tick takes it.
    if (ownership === 'unprepared') this.#prepare();
    if (ownership === 'unprepared' || ownership === 'held') return;
    const controller = new AbortController();
    // It was being taken while everything was given back.
    if (this.#stopped) controller.abort();
    const work = this.#work(ownership, controller.signal)
      .catch(this.#onError)
      .then(async () => this.#giveBack(shard, holder));
    this.#held.set(shard, { controller, work, holder, renewedAtMs: sentAtMs, isRenewing: false });
  }

  async #giveBack(shard: number, holder: string): Promise<void> {
    this.#held.delete(shard);
    try {
      const key = shardKeys(this.#redis.prefix, shard).lease(this.#consumer);
      await renewScript.run(this.#redis.client, [key], [holder, 0]);
    } catch (error) {
      this.#onError(error);
    }
  }

  /** Ends the work on every shard, gives the leases back and leaves the others' count. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#timer);
    for (const held of this.#held.values()) held.controller.abort();
    await this.#balancing;
    await Promise.all([...this.#held.values()].map(async ({ work }) => work));
    await this.#preparing;
    await this.#heartbeat('stop').catch(this.#onError);
  }
}

/** Reads the answer of own.lua. */
function readOwnership(shard: number, answer: unknown): Ownership | 'held' | 'unprepared' {
  const [kind, fence = '', epoch, done, plan, tries, draining, buried = ''] = Array.isArray(answer)
    ? answer.map(String)
    : [];
  if (kind === 'held' || kind === 'unprepared') return kind;
  return {
    shard,
    fence,
    epoch: Number(epoch),
    done: Number(done),
    plan: plan || undefined,
    planTries: Number(tries),
    buried: readRanges(buried),
    isDraining: draining === '1',
  };
}
