import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { secretKeysShape } from '@logpond/db/sealed-secret';
import { checkRedisMode, storeSettingsShape } from '@logpond/db/settings';
import { basePathSetting, processSettingsShape } from '@logpond/runtime/settings';
import { z } from 'zod';

/** Every setting of the API process (docs/operations.md). */
export const configSchema = z
  .object({
    ...storeSettingsShape,
    ...processSettingsShape,
    ...secretKeysShape,
    PORT: z.coerce.number().int().min(0).max(65_535).default(8080),
    HOST: z.string().min(1).default('127.0.0.1'),
    /** Prefix under which every route also answers, for a reverse proxy that does not cut it off. */
    BASE_PATH: basePathSetting,
    /** Whether anybody may register once the first account exists. */
    SIGNUP: z.enum(['open', 'closed']).default('closed'),
    /** The address that users type, when it is not the one this process listens on. */
    PUBLIC_URL: z.url({ protocol: /^https?$/ }).optional(),
    INGEST_BATCH_MAX: z.coerce.number().int().min(1_000).max(10_000).default(1_000),
    /** Largest body of an ingest request, after inflating. */
    MAX_BODY_BYTES: z.coerce
      .number()
      .int()
      .min(65_536)
      .max(64 * 1024 * 1024)
      .default(10 * 1024 * 1024),
    /** Where the one-time setup token is kept (mode 0600) while no account exists. */
    SETUP_TOKEN_FILE: z.string().min(1).default(join(tmpdir(), 'logpond-setup-token')),
  })
  .superRefine(checkRedisMode);

export type ApiConfig = z.infer<typeof configSchema>;
