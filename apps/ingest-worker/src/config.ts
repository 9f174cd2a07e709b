import { z } from 'zod';
import { checkRedisMode, storeSettingsShape } from '@logpond/db/settings';
import { processSettingsShape } from '@logpond/runtime/settings';
import type { WorkerDeps } from './shard.ts';

/** Every setting of the ingest worker (docs/operations.md says more). */
export const configSchema = z
  .object({
    ...storeSettingsShape,
    ...processSettingsShape,
    /** The longest that entries wait for others before they are inserted, under load. */
    FLUSH_INTERVAL_MS: z.coerce.number().int().min(0).max(60_000).default(1_000),
    /** Entries of one insert at most (a block more, since blocks are not cut). */
    FLUSH_ROWS_MAX: z.coerce.number().int().min(1).max(1_000_000).default(250_000),
    /** Stored bytes of one insert at most (a block more). */
    FLUSH_BYTES_MAX: z.coerce.number().int().min(1).max(268_435_456).default(67_108_864),
    /** How long after its commit a plan is counted once more. The replay window must be longer: what is missing comes from there. */
    AUDIT_AFTER_MS: z.coerce.number().int().min(0).max(3_600_000).default(60_000),
    /** How often each shard sends an entry of its own through the whole pipeline; 0: never. */
    CANARY_INTERVAL_MS: z.coerce.number().int().min(0).max(3_600_000).default(60_000),
  })
  .superRefine(checkRedisMode)
  .superRefine(({ AUDIT_AFTER_MS: auditAfterMs, REPLAY_WINDOW_MS: windowMs }, context) => {
    if (auditAfterMs < windowMs) return;
    const message = `expected less than REPLAY_WINDOW_MS (${windowMs}), as what an audit finds missing comes from the stream`;
    context.addIssue({ code: 'custom', path: ['AUDIT_AFTER_MS'], message });
  });

/** How large inserts are and how often things are done, from the settings. */
export function readPacing(
  config: z.infer<typeof configSchema>,
): Pick<WorkerDeps, 'flush' | 'auditAfterMs' | 'canaryIntervalMs'> {
  return {
    flush: {
      intervalMs: config.FLUSH_INTERVAL_MS,
      rowsMax: config.FLUSH_ROWS_MAX,
      bytesMax: config.FLUSH_BYTES_MAX,
    },
    auditAfterMs: config.AUDIT_AFTER_MS,
    canaryIntervalMs: config.CANARY_INTERVAL_MS,
  };
}
