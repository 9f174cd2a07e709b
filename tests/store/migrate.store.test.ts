import { readdir, readFile } from 'node:fs/promises';
import { connectClickHouse } from '@logpond/db/clickhouse';
import type { ClickHouseStore } from '@logpond/db/clickhouse';
import { checkSchema, migrateClickHouse } from '@logpond/db/migrate';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startEngine } from './log-store-fixture.ts';
import type { TestEngine } from './log-store-fixture.ts';

let engine: TestEngine;
beforeAll(async () => {
  engine = await startEngine();
});
afterAll(async () => {
  await engine.stop();
});

const migrations = new URL('../../packages/db/src/migrations/', import.meta.url);

const TABLES = [
  'alert_deliveries',
  'alert_firings',
  'logs',
  'logs_hourly',
  'logs_to_hourly',
  'schema_migrations',
];

async function listTables(store: ClickHouseStore): Promise<string[]> {
  const rows = await store.readInternal<{ name: string }>(
    'SELECT name FROM system.tables WHERE database = currentDatabase() ORDER BY name',
  );
  return rows.map(({ name }) => name);
}

describe('the migrations', () => {
  it('make a database of their own, are recorded once, and change nothing the second time', async () => {
    await using store = connectClickHouse({ ...engine.settings, CLICKHOUSE_DATABASE: 'fresh' });
    const names = (await readdir(migrations)).toSorted();
    expect(await migrateClickHouse(store)).toEqual({ applied: names });
    expect(await migrateClickHouse(store)).toEqual({ applied: [] });
    expect(await listTables(store)).toEqual(TABLES);
    await checkSchema(store);
  });

  it('are completed by the next run when one was killed after any of its statements', async () => {
    const statements = await readStatements();
    for (let done = 0; done <= statements.length; done++) {
      await using store = connectClickHouse({ ...engine.settings, CLICKHOUSE_DATABASE: `killed_${done}` });
      await store.createDatabase();
      for (const statement of statements.slice(0, done)) {
        await store.command(statement);
      }
      await expect(checkSchema(store)).rejects.toThrow(/missing 0001_logs\.sql/);
      await migrateClickHouse(store);
      await checkSchema(store);
      expect(await listTables(store)).toEqual(TABLES);
    }
  });

  it('refuse to run when one of them was changed after it was applied', async () => {
    await using store = connectClickHouse({ ...engine.settings, CLICKHOUSE_DATABASE: 'changed' });
    await migrateClickHouse(store);
    await store.command(
      `INSERT INTO schema_migrations SELECT 2, '0002_logs_hourly.sql', 'other', now64(3, 'UTC') + 1`,
    );
    await expect(migrateClickHouse(store)).rejects.toThrow(
      /0002_logs_hourly\.sql was changed after it was applied/,
    );
  });

  it('leave a newer schema alone', async () => {
    await using store = connectClickHouse({ ...engine.settings, CLICKHOUSE_DATABASE: 'newer' });
    await migrateClickHouse(store);
    await store.command(`INSERT INTO schema_migrations SELECT 9999, '9999_later.sql', 'x', now64(3, 'UTC')`);
    expect(await migrateClickHouse(store)).toEqual({ applied: [] });
    await checkSchema(store);
  });

  it.each(['fsync_after_insert', 'fsync_part_directory', 'non_replicated_deduplication_window'])(
    'a table whose %s was changed is refused at start',
    async (setting) => {
      await using store = connectClickHouse({
        ...engine.settings,
        CLICKHOUSE_DATABASE: `without_${setting}`,
      });
      await store.createDatabase();
      await migrateClickHouse(store);
      await store.command(`ALTER TABLE logs MODIFY SETTING ${setting} = 0`);
      await expect(checkSchema(store)).rejects.toThrow('the table logs would lose or repeat entries');
    },
  );
});

async function readStatements(): Promise<string[]> {
  const names = (await readdir(migrations)).toSorted();
  const texts = await Promise.all(names.map((name) => readFile(new URL(name, migrations), 'utf8')));
  return texts
    .join('\n')
    .replaceAll(/^--.*$/gm, '')
    .split(';')
    .filter((text) => text.trim() !== '');
}
