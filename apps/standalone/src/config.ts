import { resolve } from 'node:path';
import { storeSettingsShape } from '@logpond/db/settings';
import { readConfig } from '@logpond/runtime/env';
import { basePathSetting } from '@logpond/runtime/settings';
import { z } from 'zod';

/** The checkout: the page's command lines are run there, and data lives in it unless told otherwise. */
export const CHECKOUT_DIR = resolve(import.meta.dirname, '../../..');

/** What the launcher reads itself; all else of the environment passes through to the processes it starts. */
const configSchema = z
  .object({
    PORT: z.coerce.number().int().min(1).max(65_535).default(8080),
    HOST: z.string().min(1).default('127.0.0.1'),
    BASE_PATH: basePathSetting,
    LOGPOND_DATA_DIR: z
      .string()
      .default('.logpond')
      .transform((path) => resolve(CHECKOUT_DIR, path)),
    /** With it, no redis-server is started. */
    REDIS_URL: storeSettingsShape.REDIS_URL.unwrap().optional(),
    /** With it, no engine is started. */
    CLICKHOUSE_URL: storeSettingsShape.CLICKHOUSE_URL.unwrap().optional(),
    KEY_PREFIX: storeSettingsShape.KEY_PREFIX,
    REDIS_BUDGET_BYTES: storeSettingsShape.REDIS_BUDGET_BYTES,
    SHARDS: storeSettingsShape.SHARDS.unwrap().default(2),
    REDIS_MODE: storeSettingsShape.REDIS_MODE,
    REDIS_WAIT_REPLICAS: storeSettingsShape.REDIS_WAIT_REPLICAS,
    /** Without it, a key made at the first start seals the secrets of rules. */
    SECRET_KEYS: z.string().optional(),
    /** Where links in notifications lead; without it, to this machine. */
    PUBLIC_URL: z.url({ protocol: /^https?$/ }).optional(),
    /** Where mail is written as files while there is no SMTP_URL. */
    MAIL_OUTBOX_DIR: z.string().optional(),
    SMTP_URL: z.string().optional(),
  })
  .superRefine(({ REDIS_URL, REDIS_MODE, REDIS_WAIT_REPLICAS }, context) => {
    if (REDIS_URL !== undefined) return;
    // The processes would wait for ever for what the embedded server does not have.
    const expect = (name: string, wanted: string): void =>
      context.addIssue({
        code: 'custom',
        path: [name],
        message: `expected ${wanted} while REDIS_URL is not set`,
      });
    if (REDIS_MODE !== 'single') expect('REDIS_MODE', 'single');
    if (REDIS_WAIT_REPLICAS > 0) expect('REDIS_WAIT_REPLICAS', '0');
  });

export type LauncherConfig = z.infer<typeof configSchema> & {
  /** Where this machine reaches the API, base path included, no slash at the end. */
  url: string;
};

/** Reads the launcher's settings. Throws ConfigError with all problems. */
export function readLauncherConfig(): LauncherConfig {
  const config = readConfig(configSchema);
  const reachable: Record<string, string> = { '0.0.0.0': '127.0.0.1', '::': '[::1]' };
  const host = reachable[config.HOST] ?? (config.HOST.includes(':') ? `[${config.HOST}]` : config.HOST);
  return { ...config, url: `http://${host}:${config.PORT}${config.BASE_PATH}` };
}
