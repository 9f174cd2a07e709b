import { z } from 'zod';
import { alertConditionSchema } from './alert-condition.ts';
import { timeBoundSchema } from './alert-history.ts';
import {
  alertCommonShape,
  alertFlatShape,
  alertNotificationsSchema,
  alertRuleInputSchema,
  describeShape,
  isFlatShape,
} from './alert-rule.ts';
import type { AlertRuleDraft } from './alert-rule.ts';
import { describeIssue, listNames } from './describe-issue.ts';
import { describeValue } from './describe-value.ts';

/** Points of the series of a preview. */
export const PREVIEW_POINTS_MAX = 500;

/** A rule that is tried on stored entries; the range as it was given, in ms since 1970. */
export type AlertPreviewInput = {
  draft: AlertRuleDraft;
  fromMs?: number | undefined;
  toMs?: number | undefined;
};

const timeSchema = z.string().meta({ format: 'date-time' });

const rangeSchema = z.object({ from: timeBoundSchema.optional(), to: timeBoundSchema.optional() });

const rangeShape = {
  from: timeSchema
    .optional()
    .describe('Entries received from then on; 24 h before `to` by default, 30 d at most'),
  to: timeSchema
    .optional()
    .describe('Entries received until then, to the end of its second; now by default, and at most'),
};
const { notifications, ...commonShape } = z
  .strictObject({ ...alertCommonShape, notifications: alertNotificationsSchema })
  .partial().shape;
const NESTED = z.strictObject({ ...commonShape, condition: alertConditionSchema, notifications });
const FLAT = z.strictObject({
  ...commonShape,
  ...alertFlatShape,
  emailRecipients: alertFlatShape.emailRecipients.optional(),
});
const EXAMPLE_RANGE = { from: '2026-01-30T00:00:00Z', to: '2026-01-31T00:00:00Z' };
const EXAMPLE = { field: 'level', operator: 'gte', value: 'error', threshold: 20, timeWindow: '5m' };

/** For the documentation: what else a rule must have may be missing. */
const PREVIEW_SHAPES = [
  describeShape(NESTED.extend(rangeShape).meta({ title: 'Nested form' }), { condition: EXAMPLE }),
  describeShape(FLAT.extend(rangeShape).meta({ title: 'Flat form' }), {
    level: ['error', 'critical'],
    threshold: 20,
    timeWindow: 5,
  }),
  describeShape(
    z.strictObject({ rule: z.union([NESTED, FLAT]), ...rangeShape }).meta({ title: 'Rule by itself' }),
    { rule: { condition: EXAMPLE }, ...EXAMPLE_RANGE },
  ),
];

/** What a preview does not look at and a rule must have. */
function completeRule(rule: object): object {
  const recipients = isFlatShape(rule) ? { emailRecipients: [] } : { notifications: [] };
  return { name: 'preview', enabled: true, ...recipients, ...rule };
}

/** The body of POST /projects/{projectId}/alerts/preview: a rule, and which entries it is tried on. */
export const alertPreviewInputSchema = z
  .unknown()
  .meta({ anyOf: PREVIEW_SHAPES })
  .transform((body, context): AlertPreviewInput => {
    const refuse = (path: readonly PropertyKey[], message: string): void => {
      context.issues.push({ code: 'custom', path: [...path], message, input: body });
    };
    if (typeof body !== 'object' || body === null || Array.isArray(body)) {
      refuse([], `expected an object, got ${describeValue(body)}`);
      return z.NEVER;
    }
    const { from, to, ...rest }: Record<string, unknown> = { ...body };
    const { rule, place } = takeRule(rest, refuse);
    const range = rangeSchema.safeParse({ from, to }, { error: describeIssue });
    for (const { path, message } of range.error?.issues ?? []) refuse(path, message);
    if (rule === undefined) return z.NEVER;
    const draft = alertRuleInputSchema.safeParse(completeRule(rule));
    for (const { path, message } of draft.error?.issues ?? []) refuse([...place, ...path], message);
    if (!draft.success || !range.success) return z.NEVER;
    return { draft: draft.data, fromMs: range.data.from, toMs: range.data.to };
  });

/** The rule of a body, which is its `rule` or all of it, and where in the body that is. */
function takeRule(
  { rule, ...others }: Record<string, unknown>,
  refuse: (path: readonly string[], message: string) => void,
): { rule: object | undefined; place: string[] } {
  if (rule === undefined) return { rule: others, place: [] };
  const left = Object.keys(others);
  if (left.length > 0) {
    refuse([], `expected either rule or its fields beside from and to, got rule and ${listNames(left)}`);
  }
  if (typeof rule === 'object' && rule !== null && !Array.isArray(rule)) return { rule, place: ['rule'] };
  refuse(['rule'], `expected an object, got ${describeValue(rule)}`);
  return { rule: undefined, place: [] };
}

/** The answer of POST /projects/{projectId}/alerts/preview. */
export const alertPreviewAnswerSchema = z
  .object({
    firings: z.array(
      z.object({
        startedAt: timeSchema,
        resolvedAt: timeSchema.nullable().describe('null: it still fired at the end of the range'),
        peak: z.int(),
      }),
    ),
    maxCount: z.int().describe('Most matching entries that the window held'),
    series: z
      .array(z.object({ bucket: timeSchema, count: z.int() }))
      .max(PREVIEW_POINTS_MAX)
      .describe('Matching entries by their time; every bucket of the range, also empty ones'),
    quieterThreshold: z
      .int()
      .nullable()
      .describe('Least higher threshold with at most one firing a day; null when this one is quiet enough'),
  })
  .meta({ id: 'AlertPreview' });

export type AlertPreview = z.output<typeof alertPreviewAnswerSchema>;
