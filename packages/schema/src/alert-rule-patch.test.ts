import { describe, expect, it } from 'vitest';
import { alertRuleInputSchema } from './alert-rule.ts';
import { alertRulePatchSchema, applyAlertRulePatch } from './alert-rule-patch.ts';

const WEBHOOK = { type: 'webhook', config: { url: 'https://a.example/' } };
const RULE = {
  name: 'Errors',
  enabled: true,
  condition: { field: 'level', operator: 'equals', value: 'error', threshold: 50, timeWindow: '90s' },
  notifications: [{ type: 'email', config: { recipients: ['ops@example.com'] } }, WEBHOOK],
};

function patch(json: unknown, rule: unknown = RULE): unknown {
  const patched = applyAlertRulePatch(alertRuleInputSchema.parse(rule), alertRulePatchSchema.parse(json));
  const outcome = alertRuleInputSchema.safeParse(patched);
  return outcome.success ? outcome.data : outcome.error.issues.map(({ path }) => path.join('.'));
}

describe('alertRulePatchSchema', () => {
  it.each<[object, object]>([
    [{ name: 'x' }, { ...RULE, name: 'x' }],
    [
      { enabled: false, service: 'web' },
      { ...RULE, enabled: false, service: 'web' },
    ],
    [{ condition: { threshold: 7 } }, { ...RULE, condition: { ...RULE.condition, threshold: 7 } }],
    [{ condition: { value: 'WARN' } }, { ...RULE, condition: { ...RULE.condition, value: 'warn' } }],
    [
      { threshold: 7, timeWindow: 3 },
      { ...RULE, condition: { ...RULE.condition, threshold: 7, timeWindow: '3m' } },
    ],
    [
      { level: ['warn', 'Error', 'warn'] },
      { ...RULE, condition: { ...RULE.condition, operator: 'in', value: ['warn', 'error'] } },
    ],
    [
      { condition: { operator: 'exists' } },
      { ...RULE, condition: { field: 'level', operator: 'exists', threshold: 50, timeWindow: '90s' } },
    ],
    [
      { emailRecipients: ['b@example.com'] },
      { ...RULE, notifications: [{ type: 'email', config: { recipients: ['b@example.com'] } }, WEBHOOK] },
    ],
    [{ emailRecipients: [] }, { ...RULE, notifications: [WEBHOOK] }],
    [{ notifications: [] }, { ...RULE, notifications: [] }],
  ])('%j changes what it names and nothing else', (json, expected) => {
    expect(patch(json)).toEqual(expected);
  });

  it('levels for a rule that counts something else are refused, so that its condition is not lost', () => {
    const status = { field: 'metadata.status', operator: 'gte', value: 500 };
    const rule = { ...RULE, condition: { ...RULE.condition, ...status } };
    expect(() => patch({ level: ['error'] }, rule)).toThrow(
      /^level: expected a rule whose condition is on level .*"condition".*, got "metadata.status"$/,
    );
    expect(patch({ threshold: 7, timeWindow: 3 }, rule)).toEqual({
      ...rule,
      condition: { ...rule.condition, threshold: 7, timeWindow: '3m' },
    });
  });

  it('a change that does not fit the rest of the condition is refused at the part that does not fit', () => {
    expect(patch({ condition: { operator: 'in' } })).toEqual(['condition.value']);
    expect(patch({ condition: { field: 'metadata.ms', operator: 'gt' } })).toEqual(['condition.value']);
    const exists = { ...RULE, condition: { ...RULE.condition, operator: 'exists', value: null } };
    expect(patch({ condition: { operator: 'equals' } }, exists)).toEqual(['condition.value']);
  });

  it.each<[unknown, string]>([
    [{}, ''],
    [{ id: 'x' }, ''],
    [{ condition: { limit: 1 } }, 'condition'],
    [{ condition: {}, level: ['error'] }, 'condition'],
    [{ condition: {}, threshold: 1 }, 'condition'],
    [{ condition: {}, timeWindow: 1 }, 'condition'],
    [{ notifications: [], emailRecipients: [] }, 'notifications'],
    [{ name: null }, 'name'],
    [{ timeWindow: '5m' }, 'timeWindow'],
    [{ level: [] }, 'level'],
  ])('%j is refused at %j', (json, path) => {
    const outcome = alertRulePatchSchema.safeParse(json);
    expect(outcome.error?.issues.map((issue) => issue.path.join('.'))).toContain(path);
  });
});
