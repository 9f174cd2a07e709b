import { z } from 'zod';

const REDIS_URLS_MAX = 32;

/** The settings of both stores, as environment variables; every app spreads this shape into its own schema. */
export const storeSettingsShape = {
  /**
   * `single`: one server. `sentinel`: REDIS_URL lists Sentinels, which know the primary. `cluster`: REDIS_URL
   * lists some nodes of a Redis Cluster.
   */
  REDIS_MODE: z.enum(['single', 'sentinel', 'cluster']).default('single'),
  /**
   * One URL, or several with commas between them where REDIS_MODE is not `single`. Scheme, user and password of
   * the first are those of the Redis servers, in every mode.
   */
  REDIS_URL: z.string().superRefine(checkRedisUrls).default('redis://127.0.0.1:6379'),
  /** What the Sentinels call the primary. */
  REDIS_SENTINEL_NAME: z.string().min(1).default('mymaster'),
  /** Of the Sentinels themselves, where they ask for one. */
  REDIS_SENTINEL_PASSWORD: z.string().default(''),
  /** Replicas that must hold what is acknowledged before it is; 0: the primary's disk alone. */
  REDIS_WAIT_REPLICAS: z.coerce.number().int().min(0).max(5).default(0),
  /** How long stored entries stay in the stream for readers of the live tail that come back. */
  REPLAY_WINDOW_MS: z.coerce.number().int().min(10_000).max(86_400_000).default(900_000),
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

/** Splits REDIS_URL at its commas; a comma inside a password must be written %2C. */
export function splitRedisUrls(urls: string): string[] {
  return urls.split(',').map((url) => url.trim());
}

/** Refuses what REDIS_MODE and REDIS_URL do not allow together: for `superRefine` of a schema with this shape. */
export function checkRedisMode(
  settings: Pick<StoreSettings, 'REDIS_MODE' | 'REDIS_URL'>,
  context: z.RefinementCtx,
): void {
  const message = findRedisModeProblem(settings);
  if (message !== undefined) context.addIssue({ code: 'custom', path: ['REDIS_URL'], message });
}

/** What is wrong with REDIS_URL in this mode; undefined when nothing is. */
export function findRedisModeProblem({
  REDIS_MODE: mode,
  REDIS_URL,
}: Pick<StoreSettings, 'REDIS_MODE' | 'REDIS_URL'>): string | undefined {
  const urls = splitRedisUrls(REDIS_URL);
  if (mode === 'single' && urls.length > 1)
    return `expected one URL while REDIS_MODE is single, or REDIS_MODE to be sentinel or cluster`;
  if (mode === 'cluster' && urls.some((url) => /^\/[1-9]/.test(URL.parse(url)?.pathname ?? '')))
    return 'expected no database number: a Redis Cluster has database 0 only';
  return undefined;
}

function checkRedisUrls(value: string, context: z.RefinementCtx): void {
  const urls = splitRedisUrls(value);
  const first = URL.canParse(urls[0] ?? '') ? new URL(urls[0] ?? '') : undefined;
  const isGood = urls.every((url) => {
    if (!URL.canParse(url)) return false;
    const { protocol, hostname } = new URL(url);
    return /^rediss?:$/.test(protocol) && protocol === first?.protocol && hostname !== '';
  });
  if (isGood && urls.length <= REDIS_URLS_MAX) return;
  const message =
    'expected a URL such as redis://host:6379 (rediss:// for TLS), or up to ' +
    `${REDIS_URLS_MAX} of them with commas between, all of one scheme`;
  // What the mode says of them is not asked then.
  context.addIssue({ code: 'custom', message, continue: false });
}
