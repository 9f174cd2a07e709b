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

/** Whom a rule tells. In a stored rule the secret and the values of the headers are sealed texts. */
export type AlertNotification =
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

/** What stands for a secret that is kept and not shown; sent back, it keeps what is kept. */
export const MASKED_SECRET = '***';

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

export const alertNotificationsSchema = z
  .array(notificationSchema)
  .max(NOTIFICATIONS_MAX)
  .superRefine((notifications, context) => {
    const count = notifications.flatMap(recipientsOf).length;
    if (count <= RECIPIENTS_MAX) return;
    const message = `expected at most ${RECIPIENTS_MAX} recipients in a rule, got ${count}`;
    context.addIssue({ code: 'custom', message });
  });

/** What both shapes have in common. */
export const alertCommonShape = {
  name: z.string().trim().min(1).max(200),
  enabled: z.boolean(),
  service: z.string().min(1).max(100).nullish(),
  renotifyAfter: alertDurationSchema.nullish(),
  notifyResolved: z.boolean().optional(),
};

/** Shape A of interface.md. */
const conditionRuleSchema = z.strictObject({
  ...alertCommonShape,
  condition: alertConditionSchema,
  notifications: alertNotificationsSchema,
});

/** The fields of shape B of interface.md that shape A says otherwise; its timeWindow is in minutes. */
export const alertFlatShape = {
  level: z.array(levelSchema).min(1).max(LEVELS.length),
  threshold: alertThresholdSchema,
  timeWindow: z
    .int()
    .min(1)
    .max(ALERT_WINDOW_MAX_MS / MINUTE_MS)
    .describe('Minutes'),
  emailRecipients: recipientsSchema,
};

const flatRuleSchema = z
  .strictObject({ ...alertCommonShape, ...alertFlatShape })
  .transform(({ level, threshold, timeWindow, emailRecipients, ...common }): AlertRuleDraft => ({
    ...common,
    condition: { ...conditionOfLevels(level), threshold, timeWindow: windowOfMinutes(timeWindow) },
    notifications: notificationsOf(emailRecipients),
  }));

/** The condition that a list of levels stands for. */
export function conditionOfLevels(
  level: readonly Level[],
): Pick<AlertCondition, 'field' | 'operator' | 'value'> {
  const levels = [...new Set(level)];
  if (levels.length === 1) return { field: 'level', operator: 'equals', value: levels[0] };
  return { field: 'level', operator: 'in', value: levels };
}

export function windowOfMinutes(minutes: number): string {
  return `${minutes}m`;
}

/** The notifications that a list of addresses stands for. */
export function notificationsOf(recipients: string[]): AlertNotification[] {
  return recipients.length === 0 ? [] : [{ type: 'email', config: { recipients } }];
}

function recipientsOf(notification: AlertNotification): string[] {
  return notification.type === 'email' ? notification.config.recipients : [];
}

/** JSON Schema of what may be sent, to be put inside another schema. */
function describeShape(shape: z.ZodType): object {
  const { $schema: _dialect, ...schema } = z.toJSONSchema(shape, { io: 'input' });
  return schema;
}

/** JSON Schema of both shapes. */
export const ALERT_RULE_SHAPES: object[] = [
  describeShape(conditionRuleSchema),
  describeShape(flatRuleSchema),
];

/** Whether a body is meant as shape B, however incomplete. */
export function isFlatShape(body: unknown): boolean {
  if (typeof body !== 'object' || body === null || 'condition' in body) return false;
  return 'level' in body || 'threshold' in body || 'timeWindow' in body || 'emailRecipients' in body;
}

/**
 * The body of POST /projects/:projectId/alerts, of either shape, as one draft. The shape is told by its fields first,
 * so that problems are those of the shape that was meant.
 */
export const alertRuleInputSchema = z
  .unknown()
  .meta({ anyOf: ALERT_RULE_SHAPES })
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
  return {
    level: condition.field === 'level' ? LEVELS.filter((_, index) => matchesLevel(condition, index + 1)) : [],
    threshold: condition.threshold,
    timeWindow: Math.ceil((parseDurationMs(condition.timeWindow) ?? 0) / MINUTE_MS),
    emailRecipients: [...new Set(notifications.flatMap(recipientsOf))],
  };
}
