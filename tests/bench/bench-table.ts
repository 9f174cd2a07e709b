import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { ClickHouseLogLevel, createClient } from '@clickhouse/client';
import type { ClickHouseClient, ClickHouseSettings } from '@clickhouse/client';
import { NATIVE_COLUMNS } from '@logpond/log-block/native';
import type { Installation } from '../system/support/installation.ts';

const TABLE = 'logs_bench';
const TIMEOUT_MS = 120_000;
/** As the ingest worker inserts (packages/db/src/log-store.ts), so that only the format and the way differ. */
const INSERT_SETTINGS: ClickHouseSettings = {
  async_insert: 0,
  max_insert_block_size: '1048576',
  min_insert_block_size_rows: '1048576',
  min_insert_block_size_bytes: '1073741824',
  max_insert_threads: '1',
};
const CONTENT_COLUMNS = NATIVE_COLUMNS.map(({ name }) => name).filter(
  (name) => !['seq', 'shard', 'received_at'].includes(name),
);

/** An empty copy of the table `logs` in an installation's own engine, filled past the product. */
export class BenchTable implements AsyncDisposable {
  readonly #client: ClickHouseClient;
  readonly #projectId: string;

  private constructor(client: ClickHouseClient, projectId: string) {
    this.#client = client;
    this.#projectId = projectId;
  }

  /** Creates it and stops the merges of the whole engine. */
  static async create(installation: Installation): Promise<BenchTable> {
    const secrets = JSON.parse(readFileSync(join(installation.dataDir, 'secrets.json'), 'utf8')) as {
      clickhousePassword: string;
    };
    const environment = readFileSync(`/proc/${installation.findProcess('clickhouse')}/environ`, 'utf8');
    const port = /(?:^|\0)CLICKHOUSE_PORT=(\d+)/.exec(environment)?.[1];
    const client = createClient({
      url: `http://127.0.0.1:${port}`,
      username: 'logpond',
      password: secrets.clickhousePassword,
      request_timeout: TIMEOUT_MS,
      log: { level: ClickHouseLogLevel.OFF },
    });
    await client.command({ query: `CREATE TABLE ${TABLE} AS logs` });
    await client.command({ query: 'SYSTEM STOP MERGES' });
    return new BenchTable(client, installation.credentials.projectId);
  }

  /** Inserts JSONEachRow text as one block; the same rows twice are stored twice. */
  async insertJson(rows: readonly Buffer[]): Promise<void> {
    const names = NATIVE_COLUMNS.map(({ name }) => name).join(', ');
    const answer = await this.#client.exec({
      query: `INSERT INTO ${TABLE} (${names}) FORMAT JSONEachRow`,
      values: Readable.from(rows, { objectMode: false }),
      // Without a token of its own the engine drops an insert that equals an earlier one.
      clickhouse_settings: { ...INSERT_SETTINGS, insert_deduplication_token: crypto.randomUUID() },
    });
    await answer.stream.toArray();
  }

  /** Rows of the project and an order-free hash over all columns but the store's own ids, of both tables. */
  async compare(): Promise<{ product: TableState; direct: TableState }> {
    const [product, direct] = await Promise.all([this.#readState('logs'), this.#readState(TABLE)]);
    return { product, direct };
  }

  async readEngineVersion(): Promise<string> {
    const [row] = await this.#select<{ version: string }>('SELECT version() AS version');
    return row?.version ?? 'unknown';
  }

  async #readState(table: string): Promise<TableState> {
    const [row] = await this.#select<TableState>(
      `SELECT toUInt32(count()) AS rows, toString(sum(cityHash64(${CONTENT_COLUMNS.join(', ')}))) AS hash FROM ${table} WHERE project_id = '${this.#projectId}'`,
    );
    if (row === undefined) throw new Error(`expected one row of ${table}`);
    return row;
  }

  async #select<Row>(query: string): Promise<Row[]> {
    // The tag by which the system reads past the row policy of the projects.
    const answer = await this.#client.query({
      query,
      format: 'JSONEachRow',
      clickhouse_settings: { log_comment: '#internal' },
    });
    return answer.json<Row>();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#client.close();
  }
}

export type TableState = { rows: number; hash: string };
