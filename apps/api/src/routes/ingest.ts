import { ApiError } from '@logpond/schema/api-error';
import { ingestReceiptSchema, ingestRequestSchema } from '@logpond/schema/log-batch';
import { logEntrySchema } from '@logpond/schema/log-entry';
import { z } from 'zod';
import type { ApiDeps } from '../api-deps.ts';
import { nameMediaType } from '../request-body.ts';
import type { BodySpec } from '../request-body.ts';
import { declareRoute } from '../route.ts';
import type { RouteDeclaration } from '../route.ts';

const DAY_MS = 86_400_000;

type Batch = { bytes: Buffer; format: 'json' | 'ndjson' };

/** Missing and text/plain are JSON: that is what the simplest clients send. */
const JSON_TYPES: ReadonlySet<string> = new Set(['', 'application/json', 'text/json', 'text/plain']);
const NDJSON_TYPES: ReadonlySet<string> = new Set([
  'application/x-ndjson',
  'application/ndjson',
  'application/jsonl',
  'application/x-jsonlines',
]);

/** A batch as its bytes; it is read where it is encoded, once. */
const batchBody: BodySpec<Batch> = {
  content: { 'application/json': ingestRequestSchema, 'application/x-ndjson': logEntrySchema },
  bytesMax: undefined,
  checkMediaType: (mediaType) => {
    if (JSON_TYPES.has(mediaType) || NDJSON_TYPES.has(mediaType)) return;
    throw new ApiError('UNSUPPORTED_MEDIA_TYPE', {
      public: `expected JSON or NDJSON, got ${nameMediaType(mediaType)}; add the header "Content-Type: application/json" (or application/x-ndjson)`,
    });
  },
  parse: (bytes, mediaType) => ({ bytes, format: NDJSON_TYPES.has(mediaType) ? 'ndjson' : 'json' }),
};

const KEY_LENGTH_MAX = 255;

const ingestHeaders = z.object({
  'Idempotency-Key': z
    .string()
    .regex(new RegExp(`^[\\x20-\\x7e]{1,${KEY_LENGTH_MAX}}$`), {
      error: ({ input }) =>
        `expected 1 to ${KEY_LENGTH_MAX} printable ASCII characters, got ${String(input).length} characters`,
    })
    .optional()
    .describe('The same key and body within 1 h is stored once and answered alike'),
  Prefer: z
    .string()
    .optional()
    .describe('handling=strict: one bad entry refuses the whole batch (RFC 7240)')
    .transform(isStrict),
});

const receiptHeaders = z.object({
  'Idempotency-Replayed': z
    .literal('true')
    .optional()
    .describe('The receipt of an earlier request with this Idempotency-Key; nothing was stored again'),
});

/** Takes batches of log entries; a 200 is sent when they are on disk. */
export function ingestRoutes({ flush, config }: Pick<ApiDeps, 'flush' | 'config'>): RouteDeclaration[] {
  return [
    declareRoute({
      method: 'POST',
      path: '/ingest',
      quiet: 'onSuccess',
      access: { kind: 'apiKey', scope: 'ingest' },
      summary: 'Store a batch of log entries',
      guard: ({ projectId }) => flush.checkRoom(projectId),
      body: batchBody,
      headers: ingestHeaders,
      answers: {
        200: {
          description: 'The accepted entries are on disk',
          schema: ingestReceiptSchema,
          headers: receiptHeaders,
        },
      },
      handle: async ({ body, caller, headers }) => {
        const idempotencyKey = headers['Idempotency-Key'];
        const { receiptJson, replayed } = await flush.submit({
          projectId: caller.projectId,
          retentionMs: caller.retentionDays * DAY_MS,
          body: body.bytes,
          format: body.format,
          strict: headers.Prefer,
          batchMax: config.INGEST_BATCH_MAX,
          ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
        });
        return {
          status: 200,
          text: receiptJson,
          ...(replayed ? { headers: { 'Idempotency-Replayed': 'true' } } : {}),
        };
      },
    }),
  ];
}

/** RFC 7240: `Prefer: handling=strict` asks to refuse a whole batch for one bad entry. */
function isStrict(header: string | undefined): boolean {
  return header !== undefined && /(?:^|[,;])\s*handling\s*=\s*"?strict"?\s*(?:$|[,;])/i.test(header);
}
