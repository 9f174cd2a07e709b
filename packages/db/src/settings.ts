import { z } from 'zod';

/** The settings of both stores, as environment variables; every app spreads this shape into its own schema. */
export const storeSettingsShape = {
  REDIS_URL: z.url({ protocol: /^rediss?$/ }).default('redis://127.0.0.1:6379'),
  CLICKHOUSE_URL: z.url({ protocol: /^https?$/ }).default('http://127.0.0.1:8123'),
  CLICKHOUSE_DATABASE: z
    .string()
    .regex(/^[A-Za-z_][A-Za-z0-9_]*$/)
    .default('default'),
  CLICKHOUSE_USER: z.string().min(1).default('default'),
  CLICKHOUSE_PASSWORD: z.string().default(''),
  /**
   * The setting that carries the project to ClickHouse's row policy. The embedded engine knows no settings of
   * its own, so there it is `log_comment`; a real server uses `SQL_project` (custom_settings_prefixes).
   */
  CLICKHOUSE_PROJECT_SETTING: z.enum(['log_comment', 'SQL_project']).default('log_comment'),
  /** First part of every Redis key, so that several installations can share a server. */
  KEY_PREFIX: z
    .string()
    .regex(/^[a-z][a-z0-9-]{0,15}$/)
    .default('lp'),
  /** Bytes on the Redis server that all streams together may take; at most 60 % of its `maxmemory`. */
  REDIS_BUDGET_BYTES: z.coerce.number().int().min(16_777_216).default(1_073_741_824),
  /** Redis streams that the projects are spread over; fixed once entries are stored. */
  SHARDS: z.coerce.number().int().min(1).max(24).default(4),
};

const storeSettingsSchema = z.object(storeSettingsShape);

export type StoreSettings = z.infer<typeof storeSettingsSchema>;
