import { askRedis } from './connect.ts';
import type { RedisStore } from './connect.ts';
import type { AlertPlace } from './alert-cursor.ts';
import type { HistoryRow } from './alert-history.ts';
import type { Ownership } from './log-cursor.ts';
import { RedisScript } from './redis-script.ts';
import type { AlertRuleDocument, RuleChange } from './rule-change.ts';
import { shardKeys, shardOf } from './shard-map.ts';
import type { ShardKeys } from './shard-map.ts';
import { StoreError } from './store-error.ts';

const countScript = new RedisScript('alert-windows.lua/count.lua');
const dropScript = new RedisScript('alert-windows.lua/drop.lua');
const historyScript = new RedisScript('alert-windows.lua/history.lua');

const SCAN_COUNT = 500;
/** Rows of a shard that wait for ClickHouse; about 50 MB. */
const HISTORY_ROWS_MAX = 100_000;

/** A transition of a rule, to be told to its recipients and written into the history. */
export type OutboxItem = {
  /** UUID made from the rule, its generation and the start: the same whenever the transition is found again. */
  firingId: string;
  kind: 'fired' | 'renotified' | 'resolved';
  /** Of `renotified`: 1, 2, …; else 0. */
  repeat: number;
  projectId: string;
  /** As it was in force; whom it tells is looked up when the item is read (`readOutbox`). */
  rule: AlertRuleDocument;
  /** Matching entries in the window at the transition. */
  count: number;
  /** The same when it fired. */
  firedCount: number;
  /** Greatest count while it fired, so far. */
  peak: number;
  startedAtMs: number;
  resolvedAtMs: number | null;
  /** The transition's time, by the times at which entries were received. */
  atMs: number;
  /** It was resolved because the rule was changed or is gone, whatever the entries say: nobody is told. */
  isCutOff?: boolean;
};

/** Changes of the stored fields of one rule's window. */
export type WindowFields = { set: Readonly<Record<string, string>>; unset: readonly string[] };

/** What is written down in one step: everything between two places of the stream. */
export type CountStep = {
  to: AlertPlace;
  changes: readonly RuleChange[];
  /** Rules whose window begins anew (or ends), before `windows` is written. */
  resets: ReadonlySet<string>;
  windows: ReadonlyMap<string, WindowFields>;
  outbox: readonly OutboxItem[];
};

/** A rule in force at the cursor, with the stored fields of its window. */
export type RuleInForce = { rule: AlertRuleDocument; fields: Record<string, string> };

/**
 * What the alert worker keeps of one shard, in the shard's own slot, held under a lease: rules in force at its place
 * in the stream, their windows, and what is on its way to the queue and to the history.
 *
 * Each step is one script that checks the fence and the turn (steps are numbered), so a step whose outcome is unknown
 * is simply repeated, and a replaced owner changes nothing.
 */
export class AlertWindows {
  readonly #redis: RedisStore;
  readonly #keys: ShardKeys;
  readonly #fence: string;
  #turn: number;
  #place: AlertPlace;
  #outboxLength = 0;

  private constructor(redis: RedisStore, ownership: Ownership, turn: number, place: AlertPlace) {
    this.#redis = redis;
    this.#keys = shardKeys(redis.prefix, ownership.shard);
    this.#fence = ownership.fence;
    this.#turn = turn;
    this.#place = place;
  }

  /** @throws {StoreError} `unavailable`. */
  static async open(redis: RedisStore, ownership: Ownership): Promise<AlertWindows> {
    const { state } = shardKeys(redis.prefix, ownership.shard);
    const fields = ['alert:turn', 'alert:done', 'alert:controls'] as const;
    const [turn, done, controls] = await askRedis(redis.client.hmget(state, ...fields));
    const place = { done: Number(done ?? 1), controls: Number(controls ?? 0) };
    return new AlertWindows(redis, ownership, Number(turn ?? 0), place);
  }

  /** Up to where everything is counted. */
  get place(): AlertPlace {
    return this.#place;
  }

  /** Items of the outbox, as the last step or `measureOutbox` found it. */
  get outboxLength(): number {
    return this.#outboxLength;
  }

  /** @throws {StoreError} `unavailable`. */
  async measureOutbox(): Promise<void> {
    this.#outboxLength = await askRedis(this.#redis.client.llen(this.#keys.outbox));
  }

  /** The rules in force at this place. @throws {StoreError} `unavailable`. */
  async listRules(): Promise<RuleInForce[]> {
    const { client } = this.#redis;
    const rules = new Map<string, AlertRuleDocument>();
    let cursor = '0';
    do {
      const [next, pairs] = await askRedis(client.hscan(this.#keys.rules, cursor, 'COUNT', SCAN_COUNT));
      for (let at = 0; at + 1 < pairs.length; at += 2) {
        rules.set(pairs[at] ?? '', JSON.parse(pairs[at + 1] ?? '') as AlertRuleDocument);
      }
      cursor = next;
    } while (cursor !== '0');
    const all = [...rules.values()];
    const inForce: RuleInForce[] = [];
    for (let from = 0; from < all.length; from += SCAN_COUNT) {
      const chunk = all.slice(from, from + SCAN_COUNT);
      const windows = await Promise.all(
        chunk.map(async ({ id }) => askRedis(client.hgetall(this.#keys.window(id)))),
      );
      inForce.push(...chunk.map((rule, index) => ({ rule, fields: { ...windows[index] } })));
    }
    return inForce;
  }

  /**
   * Writes a step down and moves on. False: this owner was replaced and must stop. After a failure the very same step
   * must be repeated before any other.
   *
   * @throws {StoreError} `unavailable`: whether it was written is unknown.
   */
  async count(step: CountStep): Promise<boolean> {
    const ids = new Set([...step.resets, ...step.windows.keys()]);
    const windows = [...ids].flatMap((id) => {
      const { set, unset } = step.windows.get(id) ?? { set: {}, unset: [] };
      const fields = { set: Object.entries(set).flat(), unset };
      return [id, step.resets.has(id) ? 1 : 0, JSON.stringify(fields)];
    });
    const changes = step.changes.flatMap((change) =>
      change.op === 'put' ? [change.rule.id, JSON.stringify(change.rule)] : [change.ruleId, ''],
    );
    const turn = this.#turn + 1;
    const { done, controls } = step.to;
    const head = [this.#fence, turn, done, controls, step.changes.length, ids.size];
    const outbox = step.outbox.map(renderItem);
    const { state, rules, outbox: outboxKey, window } = this.#keys;
    const args = [...head, ...changes, ...windows, ...outbox];
    const { client } = this.#redis;
    const waiting = Number(await countScript.run(client, [state, rules, outboxKey, window('')], args));
    if (waiting < 0) return false;
    this.#outboxLength = waiting;
    this.#turn = turn;
    this.#place = step.to;
    return true;
  }

  /**
   * The oldest items of the outbox, each with the text that `dropOutbox` takes. They are for the recipients that the
   * rule has at this place; for none when it is gone.
   *
   * @throws {StoreError} `unavailable`.
   */
  async readOutbox(limit: number): Promise<{ item: OutboxItem; text: string }[]> {
    const { client } = this.#redis;
    const texts = await askRedis(client.lrange(this.#keys.outbox, 0, limit - 1));
    const items = texts.map((text) => ({ text, item: JSON.parse(text) as OutboxItem }));
    const ids = [...new Set(items.map(({ item }) => item.rule.id))];
    if (ids.length === 0) return [];
    const documents = await askRedis(client.hmget(this.#keys.rules, ...ids));
    const known = new Map<string, AlertRuleDocument['notifications']>();
    for (const [index, id] of ids.entries()) {
      const document = documents[index];
      if (document) known.set(id, (JSON.parse(document) as AlertRuleDocument).notifications);
    }
    return items.map(({ text, item }) => {
      const notifications = known.get(item.rule.id) ?? [];
      return { text, item: { ...item, rule: { ...item.rule, notifications } } };
    });
  }

  /** Two owners at once may both carry an item on: its jobs and rows have names of their own, so they are once. */
  async dropOutbox(texts: readonly string[]): Promise<void> {
    await this.#drop(this.#keys.outbox, texts);
  }

  /** The oldest rows that are not in ClickHouse yet, each with the text that `dropHistory` takes. */
  async readHistory(limit: number): Promise<{ row: HistoryRow; text: string }[]> {
    const texts = await askRedis(this.#redis.client.lrange(this.#keys.history, 0, limit - 1));
    return texts.map((text) => ({ text, row: JSON.parse(text) as HistoryRow }));
  }

  async dropHistory(texts: readonly string[]): Promise<void> {
    await this.#drop(this.#keys.history, texts);
  }

  async #drop(key: string, texts: readonly string[]): Promise<void> {
    if (texts.length > 0) await dropScript.run(this.#redis.client, [key], texts);
  }
}

/** Without recipients: what a step takes must not grow with their number and the headers of webhooks. */
function renderItem(item: OutboxItem): string {
  return JSON.stringify({ ...item, rule: { ...item.rule, notifications: [] } });
}

/**
 * Keeps rows of a project for the history; the owner of its shard brings them to ClickHouse.
 *
 * @returns how many older rows were dropped because 100,000 wait already.
 * @throws {StoreError} `unavailable`.
 */
export async function pushHistory(
  redis: RedisStore,
  projectId: string,
  rows: readonly HistoryRow[],
): Promise<number> {
  if (rows.length === 0) return 0;
  const { history } = shardKeys(redis.prefix, shardOf(projectId, redis.shards));
  const args = [HISTORY_ROWS_MAX, ...rows.map((row) => JSON.stringify(row))];
  const dropped = await historyScript.run(redis.client, [history], args);
  if (typeof dropped !== 'number') {
    throw new StoreError('redis', 'unavailable', `expected a number of history.lua, got ${String(dropped)}`);
  }
  return dropped;
}

/** What a rule shows of itself. */
export type RuleState = { state: 'ok' | 'firing'; lastTriggeredAt: string | null };

/**
 * Whether rules of a project fire, and when they last began to; those that never counted are `ok`. The evaluator
 * keeps both as the fields `state` and `lastTriggeredAt` (ms since 1970) of a window.
 *
 * @throws {StoreError} `unavailable`.
 */
export async function readRuleStates(
  redis: RedisStore,
  projectId: string,
  ruleIds: readonly string[],
): Promise<Map<string, RuleState>> {
  const { window } = shardKeys(redis.prefix, shardOf(projectId, redis.shards));
  const states = await Promise.all(
    ruleIds.map(async (id) => askRedis(redis.client.hmget(window(id), 'state', 'lastTriggeredAt'))),
  );
  return new Map(
    ruleIds.map((id, index) => {
      const [state, at] = states[index] ?? [];
      const lastTriggeredAt = at ? new Date(Number(at)).toISOString() : null;
      return [id, { state: state === 'firing' ? 'firing' : 'ok', lastTriggeredAt }];
    }),
  );
}
