import { z } from 'zod';

/** The settings that every process has; each app spreads this shape into its own schema. */
export const processSettingsShape = {
  LOG_LEVEL: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info'),
  METRICS_HOST: z.string().min(1).default('127.0.0.1'),
  /** 0 switches the metrics listener off. */
  METRICS_PORT: z.coerce.number().int().min(0).max(65_535).default(0),
  /** For tests only: where this process is to end or freeze (failpoint.ts). */
  FAILPOINT: z.string().default(''),
};

/** A path prefix such as `/logs`, without the slash at its end; empty for none. */
export const basePathSetting = z
  .string()
  .regex(/^(\/[A-Za-z0-9._~-]+)*\/?$/, 'expected a path such as /logs')
  .transform((path) => path.replace(/\/$/, ''))
  .default('');
