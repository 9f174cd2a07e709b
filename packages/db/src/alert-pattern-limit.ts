import type { AlertRuleDraft } from '@logpond/schema/alert-rule';
import { ApiError } from '@logpond/schema/api-error';
import type { AlertRuleDocument } from './rule-change.ts';

/**
 * Regular expressions cost the alert worker more than all else (up to a quarter of a second for one message of 64 KB),
 * and what each may cost for the text it is asked about adds up (packages/alerting/src/pattern-allowance.ts).
 */
const PATTERNS_PER_PROJECT_MAX = 20;

/**
 * Refuses a rule with a regular expression too many. Two made at the same moment may both pass: the limit is for cost.
 *
 * @param rules the project's rules; the one called `id` among them is the one that changes.
 * @throws {ApiError} `CONFLICT`.
 */
export function assertPatternRoom(
  draft: AlertRuleDraft,
  rules: readonly AlertRuleDocument[],
  id?: string,
): void {
  if (!hasPattern(draft)) return;
  const others = rules.filter((rule) => rule.id !== id && hasPattern(rule));
  if (others.length < PATTERNS_PER_PROJECT_MAX) return;
  throw new ApiError('CONFLICT', {
    public: `expected at most ${PATTERNS_PER_PROJECT_MAX} enabled alert rules with the operator regex in a project, got one more`,
  });
}

function hasPattern({ condition, enabled }: AlertRuleDraft): boolean {
  return enabled && condition.operator === 'regex';
}
