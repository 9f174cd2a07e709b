import { z } from 'zod';
import type { AlertCondition } from './alert-condition.ts';
import {
  ALERT_OPERATORS,
  ALERT_WINDOW_MAX_MS,
  alertConditionSchema,
  alertScalarSchema,
  alertThresholdSchema,
  matchesLevel,
  renotifyAfterSchema,
  wholeNumberSchema,
} from './alert-condition.ts';
import { webhookConfigSchema } from './alert-webhook.ts';
import { describeIssue, sayExpected } from './describe-issue.ts';
import { parseDurationMs } from './duration.ts';
import { atMostJsonBytes } from './json-size.ts';
import type { Level } from './log-entry.ts';
import { levelNumberOf, LEVELS } from './log-entry.ts';

const RECIPIENTS_MAX = 20;
const MINUTE_MS = 60_000;
const NOTIFICATIONS_MAX = 20;
/** Of JSON: the alert worker holds all rules of a shard, and what fires takes a copy of its condition along. */
const NOTIFICATIONS_BYTES_MAX = 16 * 1024;
const CONDITION_BYTES_MAX = 8 * 1024;

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
  .refine((text) => levelNumberOf(text) !== undefined, {
    error: sayExpected(`one of ${LEVELS.join(', ')}`),
  })
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
    config: webhookConfigSchema,
  }),
]);

/** As a rule is shown: what it was kept with may not be allowed any more. */
const shownNotificationSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('email'), config: z.object({ recipients: z.array(z.string()) }) }),
  z.object({
    type: z.literal('webhook'),
    config: z.object({
      url: z.string(),
      headers: z.record(z.string(), z.string()).optional().describe(`Each value as ${MASKED_SECRET}`),
      secret: z.string().optional().describe(`As ${MASKED_SECRET}`),
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
  })
  .superRefine(atMostJsonBytes(NOTIFICATIONS_BYTES_MAX));

const NESTED_EXAMPLE = {
  name: 'Payments fail',
  enabled: true,
  condition: { field: 'metadata.status', operator: 'gte', value: 500, threshold: 20, timeWindow: '5m' },
  notifications: [{ type: 'email', config: { recipients: ['ops@example.org'] } }],
};
const FLAT_EXAMPLE = {
  name: 'Too many errors',
  enabled: true,
  level: ['error', 'critical'],
  threshold: 50,
  timeWindow: 5,
  emailRecipients: ['ops@example.org'],
};

/** What both shapes have in common. */
export const alertCommonShape = {
  name: z
    .string()
    .trim()
    .min(1)
    .max(200)
    .regex(/^[^\p{Cc}\u2028\u2029]*$/u, {
      error: sayExpected('a name on one line, without control characters'),
    }),
  enabled: z.boolean(),
  service: z.string().min(1).max(100).nullish(),
  renotifyAfter: renotifyAfterSchema.nullish(),
  notifyResolved: z.boolean().optional(),
};

/** Shape A of interface.md. */
const conditionRuleSchema = z
  .strictObject({
    ...alertCommonShape,
    condition: alertConditionSchema.superRefine(atMostJsonBytes(CONDITION_BYTES_MAX)),
    notifications: alertNotificationsSchema,
  })
  .meta({ title: 'Nested form' });

/** The fields of shape B of interface.md that shape A says otherwise; its timeWindow is in minutes. */
export const alertFlatShape = {
  level: z.array(levelSchema).min(1).max(LEVELS.length),
  threshold: alertThresholdSchema,
  timeWindow: wholeNumberSchema(ALERT_WINDOW_MAX_MS / MINUTE_MS, 'a whole number of minutes').describe(
    `Minutes, from 1 to ${ALERT_WINDOW_MAX_MS / MINUTE_MS} (7 days)`,
  ),
  emailRecipients: recipientsSchema,
};

const flatRuleSchema = z
  .strictObject({ ...alertCommonShape, ...alertFlatShape })
  .meta({ title: 'Flat form' })
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
export function describeShape(shape: z.ZodType, example: object): object {
  const { $schema: _dialect, ...schema } = z.toJSONSchema(shape, { io: 'input' });
  return { ...schema, examples: [example] };
}

/** JSON Schema of both shapes. */
export const ALERT_RULE_SHAPES: object[] = [
  describeShape(conditionRuleSchema, NESTED_EXAMPLE),
  describeShape(flatRuleSchema, FLAT_EXAMPLE),
];

/** Whether a body is meant as shape B, however incomplete. */
export function isFlatShape(body: unknown): boolean {
  if (typeof body !== 'object' || body === null || 'condition' in body) return false;
  return 'level' in body || 'threshold' in body || 'timeWindow' in body || 'emailRecipients' in body;
}

/** What a body says in both shapes at once, each with the field to blame. */
export function listMixedFields(body: object): { path: [string]; message: string }[] {
  const has = (name: string): boolean => Reflect.get(body, name) !== undefined;
  const mixed: { path: [string]; message: string }[] = [];
  if (has('condition') && ['level', 'threshold', 'timeWindow'].some(has)) {
    const message = 'expected either condition or level, threshold and timeWindow, got both';
    mixed.push({ path: ['condition'], message });
  }
  if (has('notifications') && has('emailRecipients')) {
    const message = 'expected either notifications or emailRecipients, got both';
    mixed.push({ path: ['notifications'], message });
  }
  return mixed;
}

/**
 * The body of POST /projects/:projectId/alerts, of either shape, as one draft. The shape is told by its fields first,
 * so that problems are those of the shape that was meant.
 */
export const alertRuleInputSchema = z
  .unknown()
  .meta({ anyOf: ALERT_RULE_SHAPES })
  .transform((body, context): AlertRuleDraft => {
    const mixed = typeof body === 'object' && body !== null ? listMixedFields(body) : [];
    const shape = isFlatShape(body) ? flatRuleSchema : conditionRuleSchema;
    const outcome = shape.safeParse(body, { error: describeIssue });
    if (outcome.success) return outcome.data;
    for (const { path, message } of mixed.length > 0 ? mixed : outcome.error.issues) {
      context.issues.push({ code: 'custom', path: [...path], message, input: body });
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
      timeWindow: z.string().describe('<n>s, <n>m, <n>h or <n>d, as it was given'),
    }),
    notifications: z.array(shownNotificationSchema),
    level: z.array(z.enum(LEVELS)),
    threshold: z.int(),
    timeWindow: z.int().describe('Minutes, rounded up; condition.timeWindow is exact'),
    emailRecipients: z.array(z.string()),
    state: z.enum(['ok', 'firing']),
    lastTriggeredAt: z
      .string()
      .nullable()
      .meta({ format: 'date-time', description: 'Start of its last firing' }),
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
