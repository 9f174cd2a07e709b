import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { alertRuleInputSchema, flattenAlertRule } from './alert-rule.ts';
import { alertRuleReplacementSchema } from './alert-rule-replacement.ts';

const CONDITION = {
  field: 'level',
  operator: 'in',
  value: ['error', 'warn'],
  threshold: 50,
  timeWindow: '90s',
};
const RULE = {
  name: 'Errors',
  enabled: true,
  condition: CONDITION,
  notifications: [{ type: 'email', config: { recipients: ['a@example.org', 'b@example.org'] } }],
};
const READ_ONLY = {
  id: 'x',
  projectId: 'y',
  state: 'firing',
  lastTriggeredAt: null,
  createdAt: '',
  updatedAt: '',
};
const DRAFT = alertRuleInputSchema.parse(RULE);
const SHOWN = { ...READ_ONLY, ...RULE, ...flattenAlertRule(DRAFT) };

describe('alertRuleReplacementSchema', () => {
  it.each<[string, object]>([
    ['a rule of the nested form', RULE],
    ['a rule as it was read', SHOWN],
    [
      'one whose lists are in another order',
      {
        ...SHOWN,
        level: ['ERROR', 'warn'],
        emailRecipients: ['b@example.org', 'a@example.org'],
      },
    ],
  ])('takes %s', (_what, body) => {
    expect(alertRuleReplacementSchema.parse(body)).toEqual(DRAFT);
  });

  it('takes the flat form, also with the fields that nobody sets', () => {
    const flat = {
      name: 'F',
      enabled: true,
      level: ['error'],
      threshold: 1,
      timeWindow: 5,
      emailRecipients: [],
    };
    const draft = alertRuleInputSchema.parse(flat);
    expect(alertRuleReplacementSchema.parse({ ...READ_ONLY, ...flat })).toEqual(draft);
  });

  it.each<[string, object, string, string]>([
    ['threshold', { threshold: 60 }, 'expected 50 as condition says, got 60', 'threshold'],
    ['window', { timeWindow: 5 }, 'expected 2 as condition says, got 5', 'timeWindow'],
    ['levels', { level: ['error'] }, 'expected ["warn","error"] as condition says, got ["error"]', 'level'],
    [
      'addresses',
      { emailRecipients: 'c@example.org' },
      'expected ["a@example.org","b@example.org"] as notifications says, got "c@example.org"',
      'emailRecipients',
    ],
  ])('refuses a flat %s that differs from the condition beside it', (_what, change, sentence, path) => {
    const issues = alertRuleReplacementSchema.safeParse({ ...SHOWN, ...change }).error?.issues;
    expect(issues).toEqual([
      expect.objectContaining({ path: [path], message: `${sentence}; leave ${path} out to be sure` }),
    ]);
  });

  it.each<[unknown, string]>([
    [null, ''],
    [[], ''],
    [{ ...SHOWN, version: 3 }, ''],
    [{ ...SHOWN, condition: { ...CONDITION, threshold: 0 } }, 'condition.threshold'],
    [{ ...SHOWN, condition: undefined }, 'condition'],
    [{ ...SHOWN, notifications: undefined }, 'notifications'],
  ])('%j is refused at %j', (body, path) => {
    const outcome = alertRuleReplacementSchema.safeParse(body);
    expect(outcome.error?.issues.map((issue) => issue.path.join('.'))).toContain(path);
  });

  it('can be written as JSON Schema that allows what was read', () => {
    const schema = z.toJSONSchema(alertRuleReplacementSchema, { io: 'input' });
    for (const form of schema.anyOf ?? []) {
      const properties = typeof form === 'object' ? Object.keys(form.properties ?? {}) : [];
      expect(properties).toEqual(expect.arrayContaining(Object.keys({ ...READ_ONLY, level: [] })));
    }
    expect(schema.anyOf).toHaveLength(2);
  });
});
