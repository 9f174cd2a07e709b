import { makeRule, NOW_S, OTHER, PROJECT } from '@logpond/alert-worker/rule.test-support';
import { nameFiring } from '@logpond/alert-worker/watched-rule';
import { readWindowSpec, replayWindow } from '@logpond/alerting/window';
import type { CountItem } from '@logpond/alerting/window';
import type { OutboxItem } from '@logpond/db/alert-windows';
import type { RedisStore } from '@logpond/db/connect';
import type { LogStream } from '@logpond/db/log-stream';
import type { AlertRuleDocument, RuleChange } from '@logpond/db/rule-change';
import { RuleStream } from '@logpond/db/rule-stream';
import { shardKeys } from '@logpond/db/shard-map';
import { describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { Owner, readCounted, readOutbox, sendErrors, settle } from './alert-evaluator-fixture.ts';
import type { CountFault } from './alert-evaluator-fixture.ts';
import { beginEachTest } from './stream-fixture.ts';

let redis: RedisStore;
let stream: LogStream;

beginEachTest((begun) => ({ redis, stream } = begun));

async function isAnyFiring(): Promise<boolean> {
  const keys = await redis.client.keys(shardKeys(redis.prefix, 0).window('*'));
  const states = await Promise.all(keys.map(async (key) => redis.client.hget(key, 'state')));
  return states.includes('firing');
}

/** Numbers from 0 to 1 that a seed decides (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const ACTIONS = 200;
const OWNED_MS = 2_000;
const HOUR_MS = 3_600_000;
/** Later than everything. */
const FAR_S = NOW_S + 1_000_000;

/** What a rule must have counted, and told, when each entry is counted once. */
class Expectation {
  readonly told: string[] = [];
  #rule: AlertRuleDocument | undefined;
  #items: CountItem[] = [];

  /** The rule as it is from now on; undefined: it is gone. */
  change(rule: AlertRuleDocument | undefined): void {
    const before = this.#rule;
    if (before !== undefined && before.generation !== rule?.generation) {
      this.#tell(before, true);
      this.#items = [];
    }
    this.#rule = rule;
  }

  send(item: CountItem): void {
    if (this.#rule?.enabled === true) this.#items.push(item);
  }

  /** Counted since the rule began anew; undefined for one that does not count. */
  get counted(): number | undefined {
    if (this.#rule?.enabled !== true) return undefined;
    const { bucketS, span } = readWindowSpec(this.#rule.condition);
    const isInTime = ({ second, receivedSecond }: CountItem): boolean =>
      Math.floor(second / bucketS) > Math.floor(receivedSecond / bucketS) - span;
    return this.#items.filter(isInTime).reduce((sum, { count }) => sum + count, 0);
  }

  /** All that is told: when a window resolved, and of a firing that ended with its rule only that it did. */
  finish(): string[] {
    if (this.#rule !== undefined) this.#tell(this.#rule, false);
    return this.told;
  }

  /** @param isOver the rule is, which ends what still fires; else time does. */
  #tell(rule: AlertRuleDocument, isOver: boolean): void {
    const { firings } = replayWindow(readWindowSpec(rule.condition), this.#items, {
      untilS: isOver ? 0 : FAR_S,
    });
    for (const { startedAtS, resolvedAtS } of firings) {
      const id = nameFiring(rule, startedAtS * 1_000);
      this.told.push(`${id} fired`);
      if (resolvedAtS !== null) this.told.push(`${id} resolved ${resolvedAtS - NOW_S}`);
      else if (isOver) this.told.push(`${id} resolved`);
    }
  }
}

function tell({ firingId, kind, resolvedAtMs }: OutboxItem): string {
  return resolvedAtMs === null
    ? `${firingId} ${kind}`
    : `${firingId} ${kind} ${resolvedAtMs / 1_000 - NOW_S}`;
}

type Random = ReturnType<typeof seeded>;

function pick<T>(random: Random, values: readonly [T, ...T[]]): T {
  return values[Math.floor(random() * values.length)] ?? values[0];
}

/** What users do, at random: entries and rules of two projects, one after the other. */
class Users {
  readonly expected = new Map<string, Expectation>();
  readonly #random: Random;
  readonly #rules = new Map<string, AlertRuleDocument>();
  #version = 0;
  #after = 0;
  #lastChange: RuleChange | undefined;

  constructor(random: Random) {
    this.#random = random;
  }

  async act(): Promise<void> {
    const projectId = pick(this.#random, [PROJECT, OTHER]);
    if (this.#random() >= 0.2) return this.#sendEntries(projectId);
    // As the poll does: what was seen already must change nothing.
    const isRepeated = this.#random() < 0.2 && this.#lastChange !== undefined;
    if (!isRepeated)
      this.#lastChange = this.#change(projectId, `${projectId}-${pick(this.#random, [1, 2, 3])}`);
    if (this.#lastChange !== undefined) await new RuleStream(redis).publish(this.#lastChange);
  }

  async #sendEntries(projectId: string): Promise<void> {
    this.#after += pick(this.#random, [0, 0, 0, 1, 3, 30]);
    const count = pick(this.#random, [1, 2, 7]);
    const age = pick(this.#random, [0, 0, 1, 4]);
    await sendErrors(stream, count, this.#after, { projectId, age });
    const receivedSecond = NOW_S + this.#after;
    for (const [ruleId, expectation] of this.expected) {
      const item = { second: receivedSecond - age, receivedSecond, count };
      if (ruleId.startsWith(projectId)) expectation.send(item);
    }
  }

  #change(projectId: string, id: string): RuleChange {
    this.#version += 1;
    const version = this.#version;
    const known = this.#rules.get(id);
    const isDeleted = known !== undefined && this.#random() < 0.2;
    const rule = isDeleted
      ? undefined
      : this.#draft(known, { id, projectId, version, name: `version ${version}` });
    const expectation = this.expected.get(id) ?? new Expectation();
    this.expected.set(id, expectation);
    expectation.change(rule);
    if (rule === undefined) {
      this.#rules.delete(id);
      return { op: 'delete', ruleId: id, projectId, version };
    }
    this.#rules.set(id, rule);
    return { op: 'put', rule };
  }

  #draft(
    known: AlertRuleDocument | undefined,
    head: Pick<AlertRuleDocument, 'id' | 'projectId' | 'version' | 'name'>,
  ): AlertRuleDocument {
    const threshold = pick(this.#random, [2, 5, 20]);
    const timeWindow = pick(this.#random, ['1s', '5s', '20s']);
    const enabled = this.#random() < 0.8;
    if (known !== undefined && this.#random() < 0.5) return { ...known, ...head };
    return { ...makeRule({ threshold, timeWindow }), ...head, enabled, generation: head.version };
  }
}

/** Owners of the shard, one after the other as they are killed, or every 2 s. */
class Owners {
  count = 0;
  readonly faults = new Map<CountFault, number>();
  elapsedMs = 0;
  readonly #random: Random;
  #isOver = false;

  constructor(random: Random) {
    this.#random = random;
  }

  async run(): Promise<void> {
    const deps = { elapsedMs: () => this.elapsedMs };
    while (!this.#isOver) {
      const owner = await Owner.take(redis, { faults: () => this.#draw(), deps });
      this.count += 1;
      const timer = setTimeout(() => void owner.stop(), OWNED_MS);
      await owner.ended;
      clearTimeout(timer);
      await owner.stop();
    }
  }

  stop(): void {
    this.#isOver = true;
  }

  #draw(): CountFault {
    const fault = pick<CountFault>(this.#random, [
      'none',
      'none',
      'none',
      'none',
      'lost',
      'cut',
      'killed',
      'dead',
    ]);
    this.faults.set(fault, (this.faults.get(fault) ?? 0) + 1);
    return fault;
  }
}

describe('owners that are killed at any step', () => {
  it('count each entry once, and tell of each crossing once', async () => {
    const seed = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 31));
    process.stdout.write(`SEED=${seed}\n`);
    const random = seeded(seed);
    const users = new Users(random);
    const owners = new Owners(seeded(seed + 1));
    const running = owners.run();
    for (let action = 0; action < ACTIONS; action += 1) {
      await users.act();
      // Else all of it would be counted in a few steps.
      if (random() < 0.2) await settle(redis);
    }
    await settle(redis);
    // The windows are over for whoever owns the shard by now.
    await waitFor('all firings to end', async () => {
      owners.elapsedMs += HOUR_MS;
      return !(await isAnyFiring());
    });
    owners.stop();
    await running;
    const faults = JSON.stringify(Object.fromEntries(owners.faults));
    process.stdout.write(`${owners.count} owners, counts: ${faults}\n`);
    expect(owners.count).toBeGreaterThan(5);
    const wanted = [...users.expected.values()].flatMap((expectation) => expectation.finish()).toSorted();
    expect(wanted.length).toBeGreaterThan(10);
    const outbox = (await readOutbox(redis)).map(tell).toSorted();
    // Of an end that came with a change of the rule the time is not compared.
    const alike = outbox.map((line, index) => (line.startsWith(`${wanted[index]} `) ? wanted[index] : line));
    expect(alike).toEqual(wanted);
    const counting = [...users.expected].filter(([, { counted }]) => counted !== undefined);
    for (const [id, { counted }] of counting) expect(await readCounted(redis, id)).toBe(counted);
  });
});
