import { z } from 'zod';
import { sayExpected } from './describe-issue.ts';
import { checkWebhookUrl, isReservedHeader } from './webhook-rules.ts';

const HEADERS_MAX = 20;

const urlSchema = z
  .string()
  .max(2048, { abort: true })
  .superRefine((url, context) => {
    const message = checkWebhookUrl(url);
    if (message !== undefined) context.addIssue({ code: 'custom', message });
  })
  .meta({ format: 'uri', description: 'https, or http where the operator allows it; no user and password' });

/** The values may be secrets, so what came is not repeated. */
const headersSchema = z
  .record(
    z
      .string()
      .regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$/, {
        error: sayExpected('the name of a header, at most 100 letters, digits and hyphens'),
      })
      .refine((name) => !isReservedHeader(name), {
        error: sayExpected('a header that is not set by Logpond itself'),
      }),
    z
      .string()
      .max(1024)
      .regex(/^[\t\x20-\x7e]*$/, 'expected printable ASCII characters, got others'),
  )
  .refine((headers) => Object.keys(headers).length <= HEADERS_MAX, {
    error: ({ input }) =>
      `expected at most ${HEADERS_MAX} headers, got ${Object.keys((input ?? {}) as object).length}`,
  });

/** `config` of a notification by webhook. */
export const webhookConfigSchema = z.strictObject({
  url: urlSchema,
  headers: headersSchema.optional(),
  secret: z.string().min(1).max(256).optional().describe('Signs each message: X-Logpond-Signature'),
});
