import { z } from 'zod';
import type { AlertCondition } from './alert-condition.ts';
import {
  ALERT_OPERATORS,
  ALERT_WINDOW_MAX_MS,
  alertConditionSchema,
  alertDurationSchema,
  alertScalarSchema,
  alertThresholdSchema,
  matchesLevel,
} from './alert-condition.ts';
import { parseDurationMs } from './duration.ts';
import type { Level } from './log-entry.ts';
import { levelNumberOf, LEVELS } from './log-entry.ts';

const RECIPIENTS_MAX = 20;
const MINUTE_MS = 60_000;
const NOTIFICATIONS_MAX = 20;

type AlertNotification =
  | { type: 'email'; config: { recipients: string[] } }
  | {
      type: 'webhook';
      config: { url: string; headers?: Record<string, string> | undefined; secret?: string | undefined };
    };

/** An alert rule as a client describes it, both request shapes in one form. */
export type AlertRuleDraft = {
  name: string;
  enabled: boolean;
  condition: AlertCondition;
  notifications: AlertNotification[];
  service?: string | null | undefined;
  renotifyAfter?: string | null | undefined;
  notifyResolved?: boolean | undefined;
};

const levelSchema = z
  .string()
  .refine((text) => levelNumberOf(text) !== undefined, { error: `expected one of ${LEVELS.join(', ')}` })
  .transform((text) => text.toLowerCase() as Level)
  .meta({ enum: [...LEVELS] });
const recipientsSchema = z.array(z.email().max(254)).max(RECIPIENTS_MAX);

const notificationSchema = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('email'),
    config: z.strictObject({ recipients: recipientsSchema.min(1) }),
  }),
  z.strictObject({
    type: z.literal('webhook'),
    config: z.strictObject({
      url: z
        .url({ protocol: /^https?$/ })
        .max(2048)
        .refine((url) => !URL.canParse(url) || new URL(url).username + new URL(url).password === '', {
          error: 'expected a URL without user and password; put credentials in headers',
        }),
      headers: z
        .record(
          z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$/),
          z
            .string()
            .max(1024)
            .regex(/^[\t\x20-\x7e]*$/),
        )
        .refine((headers) => Object.keys(headers).length <= 20, { error: 'expected at most 20 headers' })
        .optional(),
      secret: z.string().min(1).max(256).optional(),
    }),
  }),
]);

const commonShape = {
  name: z.string().trim().min(1).max(200),
  enabled: z.boolean(),
  service: z.string().min(1).max(100).nullish(),
  renotifyAfter: alertDurationSchema.nullish(),
  notifyResolved: z.boolean().optional(),
};

/** Shape A of interface.md. */
const conditionRuleSchema = z.strictObject({
  ...commonShape,
  condition: alertConditionSchema,
  notifications: z.array(notificationSchema).max(NOTIFICATIONS_MAX),
});

/** Shape B of interface.md; its timeWindow is in minutes. */
const flatRuleSchema = z
  .strictObject({
    ...commonShape,
    level: z.array(levelSchema).min(1).max(LEVELS.length),
    threshold: alertThresholdSchema,
    timeWindow: z
      .int()
      .min(1)
      .max(ALERT_WINDOW_MAX_MS / MINUTE_MS)
      .describe('Minutes'),
    emailRecipients: recipientsSchema,
  })
  .transform(({ level, threshold, timeWindow, emailRecipients, ...common }): AlertRuleDraft => {
    const levels = [...new Set(level)];
    const value = levels.length === 1 ? levels[0] : levels;
    const operator = levels.length === 1 ? 'equals' : 'in';
    return {
      ...common,
      condition: { field: 'level', operator, value, threshold, timeWindow: `${timeWindow}m` },
      notifications:
        emailRecipients.length === 0 ? [] : [{ type: 'email', config: { recipients: emailRecipients } }],
    };
  });

/** JSON Schema of what may be sent, to be put inside another schema. */
function describeShape(shape: z.ZodType): object {
  const { $schema: _dialect, ...schema } = z.toJSONSchema(shape, { io: 'input' });
  return schema;
}

function isFlatShape(body: unknown): boolean {
  if (typeof body !== 'object' || body === null || 'condition' in body) return false;
  return 'level' in body || 'threshold' in body || 'timeWindow' in body || 'emailRecipients' in body;
}

/**
 * The body of POST /projects/:projectId/alerts, of either shape, as one draft. The shape is told by its fields first,
 * so that problems are those of the shape that was meant.
 */
export const alertRuleInputSchema = z
  .unknown()
  .meta({ anyOf: [describeShape(conditionRuleSchema), describeShape(flatRuleSchema)] })
  .transform((body, context): AlertRuleDraft => {
    const outcome = isFlatShape(body) ? flatRuleSchema.safeParse(body) : conditionRuleSchema.safeParse(body);
    if (outcome.success) return outcome.data;
    for (const issue of outcome.error.issues) {
      context.issues.push({ code: 'custom', path: issue.path, message: issue.message, input: body });
    }
    return z.NEVER;
  });

/** An alert rule as it is returned. The flat fields mirror a condition on level; their timeWindow is in minutes. */
export const alertRuleSchema = z
  .object({
    id: z.uuid(),
    projectId: z.uuid(),
    name: z.string(),
    enabled: z.boolean(),
    condition: z.object({
      field: z.string(),
      operator: z.enum(ALERT_OPERATORS),
      value: z.union([alertScalarSchema, z.array(alertScalarSchema)]).optional(),
      threshold: z.int(),
      timeWindow: z.string(),
    }),
    notifications: z.array(notificationSchema),
    level: z.array(z.enum(LEVELS)),
    threshold: z.int(),
    timeWindow: z.int().describe('Minutes, rounded up; condition.timeWindow is exact'),
    emailRecipients: z.array(z.string()),
    state: z.enum(['ok', 'firing']),
    lastTriggeredAt: z.string().nullable(),
    createdAt: z.string().meta({ format: 'date-time' }),
    updatedAt: z.string().meta({ format: 'date-time' }),
    service: z.string().nullable().optional(),
    renotifyAfter: z.string().nullable().optional(),
    notifyResolved: z.boolean().optional(),
  })
  .meta({ id: 'AlertRule' });

/** The flat fields of a rule: levels (empty when the condition is on another field), threshold, minutes, addresses. */
export function flattenAlertRule(draft: AlertRuleDraft): {
  level: Level[];
  threshold: number;
  timeWindow: number;
  emailRecipients: string[];
} {
  const { condition, notifications } = draft;
  const recipients = notifications.flatMap((one) => (one.type === 'email' ? one.config.recipients : []));
  return {
    level: condition.field === 'level' ? LEVELS.filter((_, index) => matchesLevel(condition, index + 1)) : [],
    threshold: condition.threshold,
    timeWindow: Math.ceil((parseDurationMs(condition.timeWindow) ?? 0) / MINUTE_MS),
    emailRecipients: [...new Set(recipients)],
  };
}
