import { checkPattern } from '@logpond/alerting/pattern';
import type { AlertCondition } from '@logpond/schema/alert-condition';
import { alertPreviewInputSchema } from '@logpond/schema/alert-preview';
import { alertRuleInputSchema } from '@logpond/schema/alert-rule';

type Issue = { code: 'custom'; path: string[]; message: string };

/** A whole rule of either shape whose regular expression can be matched in linear time. */
export const checkedRuleSchema = alertRuleInputSchema.superRefine(({ condition }, context) => {
  for (const issue of listPatternIssues(condition)) context.addIssue(issue);
});

/** The body of a preview, with the same check. */
export const checkedPreviewSchema = alertPreviewInputSchema.superRefine(({ draft }, context) => {
  for (const issue of listPatternIssues(draft.condition)) context.addIssue(issue);
});

function listPatternIssues({ operator, value }: AlertCondition): Issue[] {
  if (operator !== 'regex' || typeof value !== 'string') return [];
  const message = checkPattern(value);
  return message === undefined ? [] : [{ code: 'custom', path: ['condition', 'value'], message }];
}
