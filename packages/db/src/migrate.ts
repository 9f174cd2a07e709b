import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import type { ClickHouseStore } from './clickhouse.ts';

type Migration = { version: number; name: string; checksum: string; statements: string[] };
type AppliedMigration = { version: number; name: string; checksum: string };

const MIGRATIONS_DIRECTORY = new URL('./migrations/', import.meta.url);
const FILE_NAME = /^(\d{4})_[a-z0-9_]+\.sql$/;

const CREATE_TABLE = `CREATE TABLE IF NOT EXISTS schema_migrations
  (version UInt32, name String, checksum String, applied_at DateTime64(3, 'UTC'))
  ENGINE = MergeTree ORDER BY version SETTINGS fsync_after_insert = 1`;
const SELECT_APPLIED = `SELECT version, any(name) AS name, argMax(checksum, applied_at) AS checksum
  FROM schema_migrations GROUP BY version ORDER BY version`;
const RECORD = `INSERT INTO schema_migrations
  SELECT {version:UInt32}, {name:String}, {checksum:String}, now64(3, 'UTC')`;

/**
 * Brings the schema up to this release and returns the names of what was applied. At most one process may run
 * it at a time; the caller holds the lease. Every statement may be run again, and a migration is recorded
 * after its last statement, so that a run that was killed at any point is completed by the next one.
 *
 * Throws when an applied migration is not the one of this release any more; migrations that only a newer
 * release knows are left alone.
 */
export async function migrateClickHouse(store: ClickHouseStore): Promise<{ applied: string[] }> {
  const migrations = await readMigrations();
  await store.createDatabase();
  await store.command(CREATE_TABLE);
  const known = indexByVersion(await store.readInternal<AppliedMigration>(SELECT_APPLIED));
  for (const migration of migrations) {
    refuseChanged(migration, known.get(migration.version));
  }
  const applied: string[] = [];
  for (const migration of migrations.filter(({ version }) => !known.has(version))) {
    for (const statement of migration.statements) {
      await store.command(statement);
    }
    const { version, name, checksum } = migration;
    await store.command(RECORD, { version, name, checksum });
    applied.push(name);
  }
  return { applied };
}

/** What the table of entries must say for a commit to mean that entries are on disk, once (pipeline.md §8). */
const REQUIRED_TABLE_SETTINGS = [
  ['fsync_after_insert = 1', /\bfsync_after_insert = (?:1|true)\b/],
  ['fsync_part_directory = 1', /\bfsync_part_directory = (?:1|true)\b/],
  ['old_parts_lifetime of 600 s or more', /\bold_parts_lifetime = (?:[6-9]\d\d|\d{4,})\b/],
  [
    'a deduplication window above 0',
    /\b(?:non_replicated_deduplication_window|replicated_deduplication_window) = [1-9]/,
  ],
] as const;

/**
 * Checks that the table of entries keeps the promise.
 *
 * @throws {Error} naming every setting that somebody changed.
 */
async function assertTableSettings(store: ClickHouseStore): Promise<void> {
  const [table] = await store.readInternal<{ sql: string }>(
    `SELECT create_table_query AS sql FROM system.tables WHERE database = currentDatabase() AND name = 'logs'`,
  );
  const missing = REQUIRED_TABLE_SETTINGS.filter(([, pattern]) => !pattern.test(table?.sql ?? ''));
  if (missing.length === 0) return;
  const wanted = missing.map(([name]) => name).join(', ');
  throw new Error(`the table logs would lose or repeat entries; expected ${wanted} among its settings`);
}

/**
 * Throws, naming what is missing, when the schema is older than this release needs or its tables have lost a
 * setting that the promise stands on; a newer schema is fine.
 */
export async function checkSchema(store: ClickHouseStore): Promise<void> {
  const migrations = await readMigrations();
  const tables = await store.readInternal(
    `SELECT name FROM system.tables WHERE database = currentDatabase() AND name = 'schema_migrations'`,
  );
  const rows = tables.length === 0 ? [] : await store.readInternal<AppliedMigration>(SELECT_APPLIED);
  const known = indexByVersion(rows);
  const missing = migrations.filter(({ version }) => !known.has(version)).map(({ name }) => name);
  if (missing.length > 0) {
    throw new Error(
      `the ClickHouse schema of database ${store.database} is too old: expected ${migrations.length} migrations, ` +
        `missing ${missing.join(', ')}`,
    );
  }
  await assertTableSettings(store);
}

async function readMigrations(): Promise<Migration[]> {
  const names = (await readdir(MIGRATIONS_DIRECTORY)).filter((name) => name.endsWith('.sql')).toSorted();
  return Promise.all(
    names.map(async (name, index) => {
      const version = Number(FILE_NAME.exec(name)?.[1]);
      if (version !== index + 1) {
        throw new Error(`migrations are numbered without gaps: expected number ${index + 1}, got ${name}`);
      }
      const sql = await readFile(new URL(name, MIGRATIONS_DIRECTORY), 'utf8');
      const checksum = createHash('sha256').update(sql).digest('hex');
      return { version, name, checksum, statements: splitStatements(sql) };
    }),
  );
}

/** Statements end with a semicolon at the end of a line; comments are whole lines. */
function splitStatements(sql: string): string[] {
  const code = sql.replaceAll(/^\s*--.*$/gm, '');
  return code
    .split(/;\s*(?:\n|$)/)
    .map((statement) => statement.trim())
    .filter((statement) => statement !== '');
}

function indexByVersion(rows: readonly AppliedMigration[]): Map<number, AppliedMigration> {
  return new Map(rows.map((row) => [row.version, row]));
}

function refuseChanged(migration: Migration, applied: AppliedMigration | undefined): void {
  if (applied !== undefined && applied.checksum !== migration.checksum) {
    throw new Error(
      `migration ${migration.name} was changed after it was applied: expected checksum ${applied.checksum}, ` +
        `got ${migration.checksum}; restore the file and put the change into a new migration`,
    );
  }
}
