import { z } from 'zod';
import { storeSettingsShape } from '@logpond/db/settings';
import { processSettingsShape } from '@logpond/runtime/settings';

/** Every setting of the ingest worker (docs/operations.md says more). */
export const configSchema = z.object({
  ...storeSettingsShape,
  ...processSettingsShape,
  /** The longest that entries wait for others before they are inserted, under load. */
  FLUSH_INTERVAL_MS: z.coerce.number().int().min(0).max(60_000).default(1_000),
  /** Entries of one insert at most (a block more, since blocks are not cut). */
  FLUSH_ROWS_MAX: z.coerce.number().int().min(1).max(1_000_000).default(250_000),
  /** Stored bytes of one insert at most (a block more). */
  FLUSH_BYTES_MAX: z.coerce.number().int().min(1).max(268_435_456).default(67_108_864),
});
