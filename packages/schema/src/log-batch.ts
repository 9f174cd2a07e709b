import { z } from 'zod';
import { ERROR_DETAILS_MAX } from './api-error.ts';
import { logEntrySchema } from './log-entry.ts';

/** Entries in one request unless INGEST_BATCH_MAX says otherwise. */
const BATCH_ENTRIES_MAX = 1000;

/** The documented body of POST /ingest; a bare array and NDJSON are accepted too. For OpenAPI, not for the hot path. */
export const ingestRequestSchema = z
  .object({ logs: z.array(logEntrySchema).min(1).max(BATCH_ENTRIES_MAX) })
  .meta({ id: 'IngestRequest' });

/** The answer of POST /ingest. `rejected` names the first 20 refused entries, `rejectedCount` counts all of them. */
export const ingestReceiptSchema = z
  .object({
    received: z.int().min(0).describe('Log entries of this batch that are on disk'),
    timestamp: z.string().meta({ format: 'date-time' }),
    rejected: z
      .array(z.object({ index: z.int().min(0), code: z.string(), message: z.string() }))
      .max(ERROR_DETAILS_MAX)
      .optional(),
    rejectedCount: z.int().min(1).optional(),
  })
  .meta({ id: 'IngestReceipt' });

export type IngestReceipt = z.infer<typeof ingestReceiptSchema>;
