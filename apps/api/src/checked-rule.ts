import { checkPattern } from '@logpond/alerting/pattern';
import type { AlertCondition } from '@logpond/schema/alert-condition';
import { alertPreviewInputSchema } from '@logpond/schema/alert-preview';
import { alertRuleInputSchema } from '@logpond/schema/alert-rule';
import { alertRuleReplacementSchema } from '@logpond/schema/alert-rule-replacement';
import { describeValue } from '@logpond/schema/describe-value';

type Issue = { code: 'custom'; path: string[]; message: string };

/** A whole rule of either shape whose regular expression can be matched in linear time. */
export const checkedRuleSchema = alertRuleInputSchema.superRefine(({ condition }, context) => {
  for (const issue of listPatternIssues(condition)) context.addIssue(issue);
});

/** The body of a replacement, with the same check. */
export const checkedReplacementSchema = alertRuleReplacementSchema.superRefine(({ condition }, context) => {
  for (const issue of listPatternIssues(condition)) context.addIssue(issue);
});

/** The body of a preview, with the same check. */
export const checkedPreviewSchema = alertPreviewInputSchema.superRefine(({ draft }, context) => {
  for (const issue of listPatternIssues(draft.condition)) context.addIssue(issue);
});

function listPatternIssues({ operator, value }: AlertCondition): Issue[] {
  if (operator !== 'regex' || typeof value !== 'string') return [];
  const message = checkPattern(value);
  if (message === undefined) return [];
  return [{ code: 'custom', path: ['condition', 'value'], message: quoteAsTyped(message, value) }];
}

/** The engine gets the pattern behind a flag, and quotes that whole text where no part of the pattern is to blame. */
function quoteAsTyped(message: string, pattern: string): string {
  return message
    .replace('error parsing regexp: ', '')
    .replace(`\`(?s)${pattern}\``, () => `got ${describeValue(pattern)}`);
}
