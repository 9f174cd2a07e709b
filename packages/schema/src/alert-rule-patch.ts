import { z } from 'zod';
import { alertConditionShape } from './alert-condition.ts';
import {
  alertCommonShape,
  alertFlatShape,
  alertNotificationsSchema,
  conditionOfLevels,
  listMixedFields,
  notificationsOf,
  windowOfMinutes,
} from './alert-rule.ts';
import type { AlertRuleDraft } from './alert-rule.ts';
import { refuseParameter } from './query-parameter.ts';

/**
 * The body of PATCH /projects/{projectId}/alerts/{alertId}: any fields of either shape, and of `condition` any part.
 * What the flat fields say otherwise must not be said twice.
 */
export const alertRulePatchSchema = z
  .strictObject({
    ...alertCommonShape,
    condition: z.strictObject(alertConditionShape).partial(),
    notifications: alertNotificationsSchema,
    ...alertFlatShape,
  })
  .partial()
  .superRefine((patch, context) => {
    if (Object.keys(patch).length === 0) {
      context.addIssue({ code: 'custom', message: 'expected at least one field to change, got none' });
    }
    for (const mixed of listMixedFields(patch)) context.addIssue({ code: 'custom', ...mixed });
  });

export type AlertRulePatch = z.output<typeof alertRulePatchSchema>;

/**
 * A rule with a patch on it, still to be checked by alertRuleInputSchema: a new operator may not fit the old value.
 * `emailRecipients` takes the place of all e-mail notifications and leaves the webhooks.
 *
 * @throws {ApiError} VALIDATION_ERROR for `level` where the rule's condition is on another field: what it asks for now
 *   would go without a word.
 */
export function applyAlertRulePatch(draft: AlertRuleDraft, patch: AlertRulePatch): unknown {
  const { condition = {}, notifications, level, threshold, timeWindow, emailRecipients, ...common } = patch;
  if (level !== undefined && draft.condition.field !== 'level') {
    const expected = 'a rule whose condition is on level (send "condition" to change what this one counts)';
    return refuseParameter('level', expected, draft.condition.field);
  }
  const webhooks = draft.notifications.filter(({ type }) => type !== 'email');
  const { value: _value, ...conditionBefore } = draft.condition;
  return {
    ...draft,
    ...common,
    condition: {
      // `exists` takes no value, so that of the operator before is not meant any more.
      ...(condition.operator === 'exists' ? conditionBefore : draft.condition),
      ...condition,
      ...(level === undefined ? {} : conditionOfLevels(level)),
      ...(threshold === undefined ? {} : { threshold }),
      ...(timeWindow === undefined ? {} : { timeWindow: windowOfMinutes(timeWindow) }),
    },
    notifications:
      notifications ??
      (emailRecipients === undefined
        ? draft.notifications
        : [...notificationsOf(emailRecipients), ...webhooks]),
  };
}
