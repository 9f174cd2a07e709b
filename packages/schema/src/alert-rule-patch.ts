import { z } from 'zod';
import { alertConditionShape } from './alert-condition.ts';
import {
  alertCommonShape,
  alertFlatShape,
  alertNotificationsSchema,
  conditionOfLevels,
  notificationsOf,
  windowOfMinutes,
} from './alert-rule.ts';
import type { AlertRuleDraft } from './alert-rule.ts';

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
    const refuse = (path: string, message: string): void => {
      context.addIssue({ code: 'custom', path: path === '' ? [] : [path], message });
    };
    if (Object.keys(patch).length === 0) refuse('', 'expected at least one field to change, got none');
    const { level, threshold, timeWindow } = patch;
    if (patch.condition !== undefined && (level ?? threshold ?? timeWindow) !== undefined) {
      refuse('condition', 'expected either condition or level, threshold and timeWindow, got both');
    }
    if (patch.notifications !== undefined && patch.emailRecipients !== undefined) {
      refuse('notifications', 'expected either notifications or emailRecipients, got both');
    }
  });

export type AlertRulePatch = z.output<typeof alertRulePatchSchema>;

/**
 * A rule with a patch on it, still to be checked by alertRuleInputSchema: a new operator may not fit the old value.
 * `emailRecipients` takes the place of all e-mail notifications and leaves the webhooks.
 */
export function applyAlertRulePatch(draft: AlertRuleDraft, patch: AlertRulePatch): unknown {
  const { condition = {}, notifications, level, threshold, timeWindow, emailRecipients, ...common } = patch;
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
