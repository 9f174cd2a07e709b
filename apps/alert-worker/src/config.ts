import { z } from 'zod';
import { storeSettingsShape } from '@logpond/db/settings';

/** Every setting of the alert worker (docs/operations.md says more). */
export const configSchema = z.object({
  ...storeSettingsShape,
  LOG_LEVEL: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info'),
  METRICS_HOST: z.string().default('127.0.0.1'),
  /** 0 switches the metrics listener off. */
  METRICS_PORT: z.coerce.number().int().min(0).max(65_535).default(0),
});
