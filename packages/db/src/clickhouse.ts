import { Readable } from 'node:stream';
import { ClickHouseLogLevel, createClient } from '@clickhouse/client';
import type { ClickHouseClient, ClickHouseSettings } from '@clickhouse/client';
import { isBrokenConnection, toStoreError } from './clickhouse-error.ts';
import type { ClickHouseUse } from './clickhouse-error.ts';
import type { StoreSettings } from './settings.ts';
import { StoreError } from './store-error.ts';

/** Connections for reads, and with it the reads of one process that run at once; more of them wait. */
const READ_CONNECTIONS_MAX = 16;
/** Reads that may wait for a connection; one more would only wait longer than its client does. */
const READS_WAITING_MAX = 64;
/** Connections for inserts, counts and migrations. */
const WORK_CONNECTIONS_MAX = 8;
/** Above the engine's own limit of 10 s, so that the engine's answer comes first. */
const READ_TIMEOUT_MS = 15_000;
/** Inserts are never cancelled: giving one up leaves its outcome unknown and costs a verification. */
const WORK_TIMEOUT_MS = 300_000;
const PING_TIMEOUT_MS = 2_000;

/** Marks a read of the system itself (verify, audit, migrations), which may see every project's rows. */
const INTERNAL_TAG = '#internal';

/**
 * Limits of every tenant read (S22). Time and bytes are counted while reading. Rows are not: the engine
 * compares `max_rows_to_read` with its estimate beforehand, which for the newest page of a large project is
 * the whole project although a few granules are read, so a low value would refuse the cheapest search
 * there is. It is therefore only a fuse.
 */
const READ_LIMITS = {
  max_execution_time: 10,
  max_rows_to_read: '20000000000',
  max_bytes_to_read: '40000000000',
  max_memory_usage: '1000000000',
  /** One page is 1,000 entries of up to 256 KB. */
  max_result_bytes: '400000000',
} as const;

export type BoundQuery = {
  /** SQL with `{name:Type}` parameters only. */
  sql: string;
  params: Record<string, unknown>;
  resultRowsMax: number;
};

/**
 * One process's connections to ClickHouse over HTTP; closing it closes them all.
 *
 * Every failure is thrown as a StoreError: `unavailable` (no answer, overload; for an insert the outcome is
 * unknown), `too_expensive` (a read over its limits), `invalid_query` (a regular expression that does not
 * compile; for an insert, data that will never fit).
 */
export class ClickHouseStore implements AsyncDisposable {
  readonly database: string;
  readonly #reads: ClickHouseClient;
  readonly #work: ClickHouseClient;
  readonly #settings: ClickHouseSettingsIn;
  #readsInHand = 0;
  #hasTopKCache: Promise<boolean> | undefined;

  constructor(settings: ClickHouseSettingsIn) {
    this.database = settings.CLICKHOUSE_DATABASE;
    this.#settings = settings;
    this.#reads = openClient(settings, READ_TIMEOUT_MS, READ_CONNECTIONS_MAX);
    this.#work = openClient(settings, WORK_TIMEOUT_MS, WORK_CONNECTIONS_MAX);
  }

  /**
   * Rows of one project, read under READ_LIMITS and, in the engine, under the row policy of that project.
   * 64-bit integers come as strings. A connection that broke is tried once more.
   */
  async readTenant<Row>(projectId: string, query: BoundQuery): Promise<Row[]> {
    const settings: ClickHouseSettings = {
      ...READ_LIMITS,
      max_result_rows: String(query.resultRowsMax),
      readonly: '1',
      // The whole answer is made before the status is sent: an error is an error, never a short result.
      wait_end_of_query: 1,
      ...this.#tag(projectId),
    };
    if (this.#readsInHand >= READ_CONNECTIONS_MAX + READS_WAITING_MAX) {
      throw new StoreError('clickhouse', 'unavailable', 'too many searches wait for ClickHouse');
    }
    this.#readsInHand += 1;
    try {
      if (await this.#knowsTopKCache()) settings['use_query_condition_cache_for_top_k'] = 1;
      return await this.#rows<Row>(this.#reads, query.sql, query.params, settings, 'read');
    } finally {
      this.#readsInHand -= 1;
    }
  }

  /** Rows across all projects, for the system's own bookkeeping; no limits but the connection's 300 s. */
  async readInternal<Row>(sql: string, params: Record<string, unknown> = {}): Promise<Row[]> {
    const settings = { readonly: '1', wait_end_of_query: 1, ...this.#tag(INTERNAL_TAG) } as const;
    return this.#rows<Row>(this.#work, sql, params, settings, 'internal');
  }

  /** Runs one statement without an answer (DDL, small inserts). */
  async command(sql: string, params: Record<string, unknown> = {}): Promise<void> {
    try {
      await this.#work.command({
        query: sql,
        query_params: params,
        clickhouse_settings: this.#tag(INTERNAL_TAG),
      });
    } catch (error) {
      throw toStoreError(error, 'internal');
    }
  }

  /** Creates this store's database where it is not the one every server has. */
  async createDatabase(): Promise<void> {
    if (this.database !== 'default') {
      // The name is an identifier by the settings' schema. Until it exists, nothing can be asked inside it.
      await using other = new ClickHouseStore({ ...this.#settings, CLICKHOUSE_DATABASE: 'default' });
      await other.command(`CREATE DATABASE IF NOT EXISTS \`${this.database}\``);
    }
  }

  /** Streams the body of one INSERT and waits for the end of the answer; it is never cancelled from here. */
  async insert(sql: string, chunks: readonly Buffer[], settings: ClickHouseSettings): Promise<void> {
    try {
      const answer = await this.#work.exec({
        query: sql,
        values: Readable.from(chunks, { objectMode: false }),
        clickhouse_settings: { ...settings, ...this.#tag(INTERNAL_TAG) },
      });
      // An answer that is not read to its end keeps the socket, and an error may still follow in it.
      await answer.stream.toArray();
    } catch (error) {
      throw toStoreError(error, 'insert');
    }
  }

  /** Whether ClickHouse runs a query for this user within 2 s. */
  async ping(): Promise<boolean> {
    const signal = AbortSignal.timeout(PING_TIMEOUT_MS);
    try {
      const { success } = await this.#reads.ping({ select: true, abort_signal: signal });
      return success;
    } catch {
      return false;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.#reads.close(), this.#work.close()]);
  }

  async #rows<Row>(
    client: ClickHouseClient,
    query: string,
    params: Record<string, unknown>,
    settings: ClickHouseSettings,
    use: ClickHouseUse,
  ): Promise<Row[]> {
    const ask = async (): Promise<Row[]> => {
      const result = await client.query({
        query,
        query_params: params,
        format: 'JSONEachRow',
        clickhouse_settings: { ...settings, output_format_json_quote_64bit_integers: 1 },
      });
      return result.json<Row>();
    };
    try {
      return await ask().catch(async (error: unknown) => {
        if (!isBrokenConnection(error)) {
          throw error;
        }
        return ask();
      });
    } catch (error) {
      throw toStoreError(error, use);
    }
  }

  #tag(value: string): ClickHouseSettings {
    return { [this.#settings.CLICKHOUSE_PROJECT_SETTING]: value };
  }

  /** An engine without the setting would refuse every query that sends it. */
  async #knowsTopKCache(): Promise<boolean> {
    const sql = `SELECT 1 AS known FROM system.settings WHERE name = 'use_query_condition_cache_for_top_k'`;
    this.#hasTopKCache ??= this.readInternal<{ known: number }>(sql).then((rows) => rows.length === 1);
    try {
      return await this.#hasTopKCache;
    } catch (error) {
      this.#hasTopKCache = undefined;
      throw error;
    }
  }
}

type ClickHouseSettingsIn = Pick<
  StoreSettings,
  | 'CLICKHOUSE_URL'
  | 'CLICKHOUSE_DATABASE'
  | 'CLICKHOUSE_USER'
  | 'CLICKHOUSE_PASSWORD'
  | 'CLICKHOUSE_PROJECT_SETTING'
>;

/** Opens the pools; connects on first use. */
export function connectClickHouse(settings: ClickHouseSettingsIn): ClickHouseStore {
  return new ClickHouseStore(settings);
}

function openClient(
  settings: ClickHouseSettingsIn,
  timeoutMs: number,
  connectionsMax: number,
): ClickHouseClient {
  return createClient({
    url: settings.CLICKHOUSE_URL,
    username: settings.CLICKHOUSE_USER,
    password: settings.CLICKHOUSE_PASSWORD,
    database: settings.CLICKHOUSE_DATABASE,
    application: 'logpond',
    request_timeout: timeoutMs,
    max_open_connections: connectionsMax,
    // Long searches carry long parameters, and a URL has a limit.
    use_multipart_params_auto: true,
    log: { level: ClickHouseLogLevel.OFF }, // what fails is thrown; the caller logs it
  });
}
