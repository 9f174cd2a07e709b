import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Where the engine of one data directory keeps its things. */
export type EngineFiles = { engineDir: string; configFile: string; spoolDir: string };

/**
 * Server settings. Measured on the embedded engine: memory, caches, merge pools and merge_tree settings are
 * honoured, the log level is not (so no <logger>: with one it writes trace lines). Caches are far below their
 * defaults (4 GB for text indexes), pools small: one machine, one user.
 */
const CONFIG = `<clickhouse>
  <users_config>USERS_FILE</users_config>
  <user_scripts_path>SCRIPTS_DIR</user_scripts_path>
  <max_server_memory_usage>3000000000</max_server_memory_usage>
  <mark_cache_size>134217728</mark_cache_size>
  <index_mark_cache_size>67108864</index_mark_cache_size>
  <primary_index_cache_size>134217728</primary_index_cache_size>
  <query_condition_cache_size>33554432</query_condition_cache_size>
  <uncompressed_cache_size>0</uncompressed_cache_size>
  <text_index_tokens_cache_size>134217728</text_index_tokens_cache_size>
  <text_index_header_cache_size>134217728</text_index_header_cache_size>
  <text_index_postings_cache_size>134217728</text_index_postings_cache_size>
  <background_pool_size>2</background_pool_size>
  <background_merges_mutations_concurrency_ratio>2</background_merges_mutations_concurrency_ratio>
  <background_schedule_pool_size>8</background_schedule_pool_size>
  <background_common_pool_size>2</background_common_pool_size>
  <background_move_pool_size>1</background_move_pool_size>
  <background_fetches_pool_size>1</background_fetches_pool_size>
  <merge_tree>
    <number_of_free_entries_in_pool_to_execute_mutation>1</number_of_free_entries_in_pool_to_execute_mutation>
    <number_of_free_entries_in_pool_to_lower_max_size_of_merge>1</number_of_free_entries_in_pool_to_lower_max_size_of_merge>
    <number_of_free_entries_in_pool_to_execute_optimize_entire_partition>1</number_of_free_entries_in_pool_to_execute_optimize_entire_partition>
  </merge_tree>
</clickhouse>
`;

/** Wall 2 of tenant isolation (security.md §5): no tag, no rows. Tables need not exist yet. */
const ROW_POLICY =
  "project_id = toUUIDOrZero(getSetting('log_comment')) OR getSetting('log_comment') = '#internal'";
const TENANT_TABLES = ['logs', 'logs_hourly', 'alert_firings', 'alert_deliveries'];

/**
 * The engine knows one user, `default`, whatever the HTTP front calls it. Its grants name what Logpond does;
 * sources (file, url, remote, s3, …), users and functions are not among them and so are refused.
 */
const GRANT =
  'GRANT SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP, TRUNCATE, OPTIMIZE, KILL QUERY, SYSTEM ON *.*';

function renderUsers(): string {
  const policies = TENANT_TABLES.map((table) => `<${table}><filter>${ROW_POLICY}</filter></${table}>`).join(
    '',
  );
  return `<clickhouse>
  <profiles><default></default></profiles>
  <quotas><default></default></quotas>
  <users>
    <default>
      <password></password>
      <networks><ip>::/0</ip></networks>
      <profile>default</profile>
      <quota>default</quota>
      <grants><query>${GRANT}</query></grants>
      <databases><default>${policies}</default></databases>
    </default>
  </users>
</clickhouse>
`;
}

/** Writes the engine's configuration and users into the data directory, replacing older ones. */
export async function writeEngineFiles(dataDir: string): Promise<EngineFiles> {
  const engineDir = join(dataDir, 'engine');
  const configFile = join(dataDir, 'engine.xml');
  const usersFile = join(dataDir, 'users.xml');
  await mkdir(engineDir, { recursive: true, mode: 0o700 });
  await writeFile(usersFile, renderUsers(), { mode: 0o600 });
  const config = CONFIG.replace('USERS_FILE', escapeXml(usersFile)).replace(
    'SCRIPTS_DIR',
    // Never created: what executable() could run would have to lie there.
    escapeXml(join(dataDir, 'no-scripts')),
  );
  await writeFile(configFile, config, { mode: 0o600 });
  return { engineDir, configFile, spoolDir: join(dataDir, 'spool') };
}

function escapeXml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
