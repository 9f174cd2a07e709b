import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { alertPreviewInputSchema } from './alert-preview.ts';

const CONDITION = { field: 'level', operator: 'equals', value: 'error', threshold: 5, timeWindow: '5m' };

describe('alertPreviewInputSchema', () => {
  it('takes a rule of either shape, as `rule` or beside the range, with nobody to tell', () => {
    const draft = { name: 'preview', enabled: true, condition: CONDITION, notifications: [] };
    const flat = { level: ['error'], threshold: 5, timeWindow: 5 };
    for (const rule of [{ condition: CONDITION }, flat]) {
      for (const body of [{ rule }, rule]) expect(alertPreviewInputSchema.parse(body)).toEqual({ draft });
    }
    const named = { ...flat, name: 'n', enabled: false, emailRecipients: ['a@example.com'], service: 'web' };
    expect(alertPreviewInputSchema.parse({ rule: named }).draft).toMatchObject({ name: 'n', service: 'web' });
  });

  it('reads the range in any RFC 3339 form as milliseconds', () => {
    const range = { from: '2026-11-20T01:00:00+01:00', to: '2026-11-20T00:00:00.123999Z' };
    const { fromMs, toMs } = alertPreviewInputSchema.parse({ rule: { condition: CONDITION }, ...range });
    expect([fromMs, toMs]).toEqual([
      Date.parse('2026-11-20T00:00:00Z'),
      Date.parse('2026-11-20T00:00:00.123Z'),
    ]);
  });

  it.each<[unknown, string]>([
    [[], ''],
    [{}, 'condition'],
    [{ rule: 'x' }, 'rule'],
    [{ rule: null }, 'rule'],
    [{ rule: {} }, 'rule.condition'],
    [{ rule: { condition: { ...CONDITION, threshold: 0 } } }, 'rule.condition.threshold'],
    [{ condition: { ...CONDITION, threshold: 0 } }, 'condition.threshold'],
    [{ rule: { condition: CONDITION }, name: 'x' }, ''],
    [{ condition: CONDITION, to: 'now' }, 'to'],
    [{ condition: CONDITION, from: 5 }, 'from'],
  ])('%j is refused at %j', (body, path) => {
    const outcome = alertPreviewInputSchema.safeParse(body);
    expect(outcome.error?.issues.map((issue) => issue.path.join('.'))).toContain(path);
  });

  it('can be written as JSON Schema that asks for no more than a preview needs', () => {
    const schema = z.toJSONSchema(alertPreviewInputSchema, { io: 'input' });
    expect(schema.anyOf?.map((form) => typeof form === 'object' && form.required)).toEqual([
      ['condition'],
      ['level', 'threshold', 'timeWindow'],
      ['rule'],
    ]);
  });
});
