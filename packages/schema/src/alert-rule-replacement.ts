import { z } from 'zod';
import { ALERT_RULE_SHAPES, alertRuleInputSchema, flattenAlertRule } from './alert-rule.ts';
import type { AlertRuleDraft } from './alert-rule.ts';
import { describeValue } from './describe-value.ts';

/** Fields of a rule as it is shown that nobody sets: sent back, they are passed over. */
const READ_ONLY = ['id', 'projectId', 'state', 'lastTriggeredAt', 'createdAt', 'updatedAt'] as const;
/** Fields of the flat form that a shown rule has beside its condition, and what of the nested form they repeat. */
const MIRRORED = {
  level: 'condition',
  threshold: 'condition',
  timeWindow: 'condition',
  emailRecipients: 'notifications',
} as const;
const MIRRORED_NAMES = Object.keys(MIRRORED) as (keyof typeof MIRRORED)[];

/**
 * The body of PUT /projects/:projectId/alerts/:alertId: a rule of either shape, or one as it was read. Where it has a
 * condition, the condition counts, and flat fields beside it must say the same.
 */
export const alertRuleReplacementSchema = z
  .unknown()
  .meta({
    anyOf: ALERT_RULE_SHAPES.map(allowOthers),
    description: `A rule, or one as it was read: ${READ_ONLY.join(', ')} are passed over; ${MIRRORED_NAMES.join(', ')} beside a condition must agree with it`,
  })
  .transform((body, context): AlertRuleDraft => {
    const sent = new Map<string, unknown>(
      typeof body === 'object' && body !== null && !Array.isArray(body) ? Object.entries(body) : [],
    );
    for (const name of READ_ONLY) sent.delete(name);
    const mirrored = sent.has('condition') ? MIRRORED_NAMES.filter((name) => sent.has(name)) : [];
    const rest = new Map(sent);
    for (const name of mirrored) rest.delete(name);
    const outcome = alertRuleInputSchema.safeParse(sent.size === 0 ? body : Object.fromEntries(rest));
    if (!outcome.success) {
      for (const { path, message } of outcome.error.issues) {
        context.issues.push({ code: 'custom', path, message, input: body });
      }
      return z.NEVER;
    }
    const flat = flattenAlertRule(outcome.data);
    for (const name of mirrored.filter((one) => !isSame(flat[one], sent.get(one)))) {
      const message = `expected ${JSON.stringify(flat[name])} as ${MIRRORED[name]} says, got ${show(sent.get(name))}; leave ${name} out to be sure`;
      context.issues.push({ code: 'custom', path: [name], message, input: body });
    }
    return outcome.data;
  });

/** The shape with the fields that are passed over or must agree. */
function allowOthers(shape: object): object {
  const properties = Reflect.get(shape, 'properties') as object | undefined;
  const others = [...READ_ONLY, ...MIRRORED_NAMES].map((name) => [name, {}] as const);
  return { ...shape, properties: { ...Object.fromEntries(others), ...properties } };
}

/** Lists in any order, levels in any letter case. */
function isSame(expected: number | readonly string[], sent: unknown): boolean {
  if (typeof expected === 'number') return sent === expected;
  if (!Array.isArray(sent)) return false;
  const wanted = new Set(expected.map((one) => one.toLowerCase()));
  const given = new Set(sent.map((one: unknown) => (typeof one === 'string' ? one.toLowerCase() : one)));
  return wanted.size === given.size && [...wanted].every((one) => given.has(one));
}

function show(value: unknown): string {
  return Array.isArray(value) ? JSON.stringify(value).slice(0, 200) : describeValue(value);
}
