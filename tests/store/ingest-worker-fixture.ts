import { randomUUID } from 'node:crypto';
import { connectClickHouse } from '@logpond/db/clickhouse';
import type { ClickHouseStore } from '@logpond/db/clickhouse';
import { connectRedis } from '@logpond/db/connect';
import type { RedisStore } from '@logpond/db/connect';
import { ControlStore } from '@logpond/db/control-store';
import { LogStream } from '@logpond/db/log-stream';
import { Projects } from '@logpond/db/projects';
import { shardKeys } from '@logpond/db/shard-map';
import { BlockEncoder } from '@logpond/log-block/encode';
import type { EncodedBlock } from '@logpond/log-block/encode';
import type { CheckedEntry } from '@logpond/schema/log-entry';
import { startApp } from '../support/app-process.ts';
import type { AppProcess } from '../support/app-process.ts';
import { startStores } from '../support/stores.ts';
import type { TestStores } from '../support/stores.ts';
import { waitFor } from '../support/wait.ts';
import { createProject, operator } from './control-plane-fixture.ts';

const DAY_NS = 86_400_000_000_000n;
const BUDGET_BYTES = 16_777_216;
/** The longest retention whose partitions are days. */
const RETENTION_DAYS = 14;

/** Both stores with one shard, prepared, its stream, and questions to ask of them; no worker runs. */
export class WorkerRig implements AsyncDisposable {
  readonly stores: TestStores;
  readonly redis: RedisStore;
  readonly clickhouse: ClickHouseStore;
  readonly stream: LogStream;
  readonly keys = shardKeys('lp', 0);
  readonly #env: Readonly<Record<string, string>>;
  readonly #projects: Projects;
  readonly #organizationId: string;
  readonly #workers: AppProcess[] = [];

  private constructor(
    stores: TestStores,
    connections: { redis: RedisStore; clickhouse: ClickHouseStore; stream: LogStream },
    control: { projects: Projects; organizationId: string },
    env: Readonly<Record<string, string>>,
  ) {
    this.stores = stores;
    this.redis = connections.redis;
    this.clickhouse = connections.clickhouse;
    this.stream = connections.stream;
    this.#projects = control.projects;
    this.#organizationId = control.organizationId;
    this.#env = env;
  }

  /** @param env of every worker, beside the stores. */
  static async start(env: Readonly<Record<string, string>> = {}): Promise<WorkerRig> {
    const stores = await startStores({ shards: 1 });
    const redis = await connectRedis({
      REDIS_URL: stores.redis.url,
      KEY_PREFIX: 'lp',
      SHARDS: 1,
      REDIS_BUDGET_BYTES: BUDGET_BYTES,
    });
    const { CLICKHOUSE_URL = '', CLICKHOUSE_USER = '', CLICKHOUSE_PASSWORD = '' } = stores.env;
    const clickhouse = connectClickHouse({
      CLICKHOUSE_URL,
      CLICKHOUSE_USER,
      CLICKHOUSE_PASSWORD,
      CLICKHOUSE_DATABASE: 'default',
      CLICKHOUSE_PROJECT_SETTING: 'log_comment',
    });
    const stream = await LogStream.open(redis);
    const control = new ControlStore(redis);
    const { organizationId } = await createProject(control);
    const owner = { projects: new Projects(control), organizationId };
    const rig = new WorkerRig(stores, { redis, clickhouse, stream }, owner, env);
    const first = rig.startWorker();
    await waitFor('the shard', async () => (await redis.client.hget(rig.keys.state, 'epoch')) !== null);
    await first.stop();
    return rig;
  }

  /** A project that keeps its entries for 14 days: a partition a day. @returns its id. */
  async createProject(): Promise<string> {
    const name = randomUUID();
    const input = { organizationId: this.#organizationId, name, retentionDays: RETENTION_DAYS };
    return (await this.#projects.create(operator, input)).id;
  }

  /** Starts a worker without canaries; FLUSH_INTERVAL_MS and the like in `env`. */
  startWorker(env: Readonly<Record<string, string>> = {}): AppProcess {
    const worker = startApp('ingest-worker', {
      ...this.stores.env,
      CANARY_INTERVAL_MS: '0',
      REDIS_BUDGET_BYTES: String(BUDGET_BYTES),
      ...this.#env,
      ...env,
    });
    this.#workers.push(worker);
    return worker;
  }

  /** Runs a worker with this FAILPOINT, which is to kill it, and waits until it has. */
  async runUntilKilled(failpoint: string, env: Readonly<Record<string, string>> = {}): Promise<void> {
    const worker = this.startWorker({ ...env, FAILPOINT: failpoint });
    await waitFor(`the worker killed at ${failpoint}`, () => worker.child.signalCode === 'SIGKILL');
    // As if its lease had lapsed already.
    await this.redis.client.del(this.keys.lease('ingest'));
  }

  /** Puts one block on the stream. @returns its first offset. */
  async send(block: EncodedBlock): Promise<number> {
    const admission = await this.stream.admit(0, block);
    if (admission.kind !== 'stored') throw new Error(`expected the block stored, got ${admission.kind}`);
    return admission.firstOffset;
  }

  /** Waits until everything in the stream is committed. */
  async settle(timeoutMs = 30_000): Promise<void> {
    await waitFor(
      'everything committed',
      async () => {
        const [done, next] = await this.redis.client.hmget(this.keys.state, 'ingest:done', 'next');
        return done === next;
      },
      timeoutMs,
    );
  }

  /** What the table and the roll-up hold of a project: rows, different rows, and the roll-up's sum. */
  async count(projectId: string): Promise<{ rows: number; distinct: number; rolledUp: number }> {
    const sql = `SELECT
        (SELECT count() FROM logs WHERE project_id = {project:UUID}) AS rows,
        (SELECT uniqExact(seq) FROM logs WHERE project_id = {project:UUID}) AS distinct,
        (SELECT sum(entries) FROM logs_hourly WHERE project_id = {project:UUID}) AS rolledUp`;
    const [row] = await this.clickhouse.readInternal<Record<'rows' | 'distinct' | 'rolledUp', string>>(sql, {
      project: projectId,
    });
    return {
      rows: Number(row?.rows),
      distinct: Number(row?.distinct),
      rolledUp: Number(row?.rolledUp),
    };
  }

  /** Messages stored of a project, in order. */
  async messages(projectId: string): Promise<string[]> {
    const sql = 'SELECT message FROM logs WHERE project_id = {project:UUID} ORDER BY seq';
    const rows = await this.clickhouse.readInternal<{ message: string }>(sql, { project: projectId });
    return rows.map(({ message }) => message);
  }

  /** Drops the partition of a project's oldest entries, as if its disk had lost it. */
  async losePartition(projectId: string, tables: readonly ('logs' | 'logs_hourly')[]): Promise<void> {
    const sql =
      'SELECT _partition_id AS id FROM logs WHERE project_id = {project:UUID} ORDER BY time LIMIT 1';
    const [partition] = await this.clickhouse.readInternal<{ id: string }>(sql, { project: projectId });
    for (const table of tables)
      await this.clickhouse.command(`ALTER TABLE ${table} DROP PARTITION ID {id:String}`, {
        id: partition?.id,
      });
  }

  /** Makes the server forget the deduplication tokens of both tables, as a long outage under load does. */
  async forgetTokens(): Promise<void> {
    for (const table of ['logs', 'logs_hourly']) {
      await this.clickhouse.command(
        `ALTER TABLE ${table} MODIFY SETTING non_replicated_deduplication_window = 1`,
      );
    }
    // The log of tokens is cut when the next one comes.
    const insert = `INSERT INTO logs (project_id, retention_days, time, seq, shard, level, service, message)
      SETTINGS insert_deduplication_token = {token:String}, deduplicate_blocks_in_dependent_materialized_views = 1
      SELECT {project:UUID}, 30, now64(9), 1, 99, 'info', 'other', 'other'`;
    for (let times = 0; times < 3; times += 1) {
      await this.clickhouse.command(insert, { token: randomUUID(), project: randomUUID() });
    }
    for (const table of ['logs', 'logs_hourly']) {
      await this.clickhouse.command(
        `ALTER TABLE ${table} MODIFY SETTING non_replicated_deduplication_window = 10000`,
      );
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#workers.map(async (worker) => worker[Symbol.asyncDispose]()));
    await this.clickhouse[Symbol.asyncDispose]();
    await this.redis[Symbol.asyncDispose]();
    await this.stores[Symbol.asyncDispose]();
  }
}

/** A block of one run per project with these messages; the entries of `days` days in turn, today first. */
export function makeBlock(
  runs: { projectId: string; messages: readonly string[] }[],
  days = 1,
): EncodedBlock {
  const encoder = new BlockEncoder();
  const nowMs = Date.now();
  for (const { projectId, messages } of runs) {
    encoder.beginRun(projectId, nowMs);
    for (const [index, message] of messages.entries()) {
      const timeNs = BigInt(nowMs) * 1_000_000n - BigInt(index % days) * DAY_NS;
      const entry: CheckedEntry = { timeNs, level: 2, service: 'web', message, metadataJson: '{"n":1}' };
      encoder.appendEntry(entry);
    }
    encoder.endRun(messages.length * 100);
  }
  return encoder.finish(nowMs);
}

/** `count` different messages. */
export function numbered(count: number, prefix = 'message'): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix} ${index}`);
}
