import { z } from 'zod';
import { timeBoundSchema } from './alert-history.ts';
import { ALERT_RULE_SHAPES, alertRuleInputSchema, isFlatShape } from './alert-rule.ts';
import type { AlertRuleDraft } from './alert-rule.ts';

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

/** For the documentation. */
const { $schema: _dialect, ...inputShape } = z.toJSONSchema(
  z.object({
    rule: z.unknown().meta({
      anyOf: ALERT_RULE_SHAPES,
      description:
        'Of either shape; name, enabled, notifications and emailRecipients may be missing. Its fields may also stand beside from and to',
    }),
    from: timeSchema.optional().describe('24 h before `to` by default, 30 d at most'),
    to: timeSchema.optional().describe('Now by default'),
  }),
  { io: 'input' },
);

/** What a preview does not look at and a rule must have. */
function completeRule(rule: object): object {
  const recipients = isFlatShape(rule) ? { emailRecipients: [] } : { notifications: [] };
  return { name: 'preview', enabled: true, ...recipients, ...rule };
}

/** The body of POST /projects/{projectId}/alerts/preview: a rule, and which entries it is tried on. */
export const alertPreviewInputSchema = z
  .record(z.string(), z.unknown())
  .meta(inputShape)
  .transform((body, context): AlertPreviewInput => {
    const { from, to, ...rest } = body;
    const { rule, ...others } = rest;
    const isNested = typeof rule === 'object' && rule !== null && Object.keys(others).length === 0;
    const range = rangeSchema.safeParse({ from, to });
    const draft = alertRuleInputSchema.safeParse(completeRule(isNested ? rule : rest));
    if (draft.success && range.success) {
      return { draft: draft.data, fromMs: range.data.from, toMs: range.data.to };
    }
    const place = isNested ? ['rule'] : [];
    const issues = [
      ...(range.error?.issues ?? []),
      ...(draft.error?.issues ?? []).map(({ path, message }) => ({ path: [...place, ...path], message })),
    ];
    for (const { path, message } of issues) {
      context.issues.push({ code: 'custom', path, message, input: body });
    }
    return z.NEVER;
  });

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
