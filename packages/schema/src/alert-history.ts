import { z } from 'zod';
import { sayExpected } from './describe-issue.ts';
import { describeValue } from './describe-value.ts';
import { integerParameter } from './query-parameter.ts';
import { parseRangeBoundNs } from './timestamp.ts';

/** What a notification says: a crossing, that it still lasts, or that it is over. */
const FIRING_KINDS = ['fired', 'renotified', 'resolved'] as const;
export const ALERT_CHANNELS = ['email', 'webhook'] as const;
export const DELIVERY_STATUSES = ['sent', 'retrying', 'failed', 'not_configured'] as const;

/** Firings of one page unless `limit` says otherwise, and at most. */
const PAGE_DEFAULT = 100;
const PAGE_MAX = 1000;

const timeSchema = z.string().meta({ format: 'date-time' });

/** A bound of a range of time as RFC 3339 text; comes out in whole milliseconds since 1970. */
export const timeBoundSchema = z
  .string()
  .transform((text, context): number => {
    // A plus sign that was not percent-encoded has become a space.
    const ns = parseRangeBoundNs(
      text.replace(/ (?=\d\d(?::?\d\d)?$)/, (space, at: number) => (at > 10 ? '+' : space)),
    );
    if (ns !== undefined) return Number(ns / 1_000_000n);
    const message = `expected an RFC 3339 time such as 2026-01-31T12:00:00Z, got ${describeValue(text)}`;
    context.addIssue({ code: 'custom', message });
    return z.NEVER;
  })
  .meta({ format: 'date-time' });

export const alertHistoryQueryParams = z
  .object({
    ruleId: z.uuid().toLowerCase().optional().describe('Firings of this rule only, also when it is deleted'),
    from: timeBoundSchema.optional().describe('Firings that began then or later'),
    to: timeBoundSchema.optional().describe('Firings that began then or earlier'),
    limit: integerParameter(1, PAGE_MAX)
      .default(PAGE_DEFAULT)
      .describe(`Firings of a page, ${PAGE_DEFAULT} by default`),
    cursor: z
      .string()
      .regex(/^\d{13}\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, {
        error: sayExpected('the nextCursor of an answer'),
      })
      .optional()
      .describe('nextCursor of the page before'),
  })
  .superRefine(({ from, to }, context) => {
    if (from === undefined || to === undefined || from <= to) return;
    const [start, end] = [from, to].map((ms) => new Date(ms).toISOString());
    const message = `expected a time not after to (${end}), got ${start}`;
    context.addIssue({ code: 'custom', path: ['from'], message });
  });

const deliverySchema = z
  .object({
    kind: z.enum(FIRING_KINDS).describe('What the notification says'),
    repeat: z.int().min(0).describe('Of a repeat while it fires: 1, 2, …; else 0'),
    channel: z.enum(ALERT_CHANNELS),
    target: z.string().describe('Address or URL'),
    status: z.enum(DELIVERY_STATUSES),
    attempts: z.int().min(0),
    lastError: z.string().nullable().describe('What the mail server or the web server said last'),
    at: timeSchema.describe('When this was so'),
  })
  .meta({ id: 'AlertDelivery' });

/** The answer of GET /projects/{projectId}/alerts/history, newest first. */
export const alertHistoryAnswerSchema = z
  .object({
    history: z.array(
      z
        .object({
          id: z.uuid().describe('The same in every notification of this firing'),
          ruleId: z.uuid(),
          ruleName: z.string().describe('As the rule was called then'),
          startedAt: timeSchema.describe(
            'Start of the bucket (a 300th of the window, at least a second) in which the threshold was reached',
          ),
          resolvedAt: timeSchema
            .nullable()
            .describe(
              'When it ended: by falling below the threshold, or as the rule was changed, disabled or deleted. null: it still fires',
            ),
          count: z.int().describe('Matching entries in the window when it began'),
          peak: z
            .int()
            .describe('Greatest count; while it fires, as last told, so that it may have risen since'),
          threshold: z.int(),
          timeWindow: z.string(),
          deliveries: z
            .array(deliverySchema)
            .describe('By `at`, oldest first; of more than 50 the newest 50'),
        })
        .meta({ id: 'AlertFiring' }),
    ),
    nextCursor: z.string().nullable(),
  })
  .meta({ id: 'AlertHistory' });

export type AlertHistoryAnswer = z.output<typeof alertHistoryAnswerSchema>;
