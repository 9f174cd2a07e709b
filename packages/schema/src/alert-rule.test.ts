import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { alertRuleInputSchema, flattenAlertRule } from './alert-rule.ts';

const SHAPE_A = {
  name: 'Errors',
  enabled: true,
  condition: { field: 'level', operator: 'equals', value: 'ERROR', threshold: 50, timeWindow: '90s' },
  notifications: [{ type: 'email', config: { recipients: ['ops@example.com'] } }],
};
const SHAPE_B = {
  name: 'Errors',
  enabled: false,
  level: ['error', 'Critical'],
  threshold: 10,
  timeWindow: 5,
  emailRecipients: ['a@example.com', 'b@example.com'],
};

function withCondition(condition: object): object {
  return { ...SHAPE_A, condition: { ...SHAPE_A.condition, ...condition } };
}

function withWebhook(config: object): object {
  return { ...SHAPE_A, notifications: [{ type: 'webhook', config: { url: 'https://a.b/', ...config } }] };
}

function pathOf(body: unknown): string {
  const outcome = alertRuleInputSchema.safeParse(body);
  return outcome.success ? 'accepted' : (outcome.error.issues[0]?.path.join('.') ?? '');
}

/** What `make` makes of 18 texts, so long that it takes `bytes` bytes as JSON. */
function fill<T>(bytes: number, make: (texts: string[]) => T, character = 'x'): T {
  let rest = bytes - JSON.stringify(make(Array.from({ length: 18 }, () => ''))).length;
  const size = new TextEncoder().encode(character).length;
  return make(
    Array.from({ length: 18 }, () => {
      const length = Math.min(1_000, rest);
      rest -= length;
      return character.repeat(length / size) + 'x'.repeat(length % size);
    }),
  );
}

function webhooksOf(texts: string[]): object[] {
  const headers = Object.fromEntries(texts.map((text, index) => [`x-${index}`, text]));
  return [{ type: 'webhook', config: { url: 'https://example.com/', headers } }];
}

function inList(texts: string[]): object {
  return { field: 'service', operator: 'in', value: texts, threshold: 1, timeWindow: '1m' };
}

describe('alertRuleInputSchema', () => {
  it('takes the shape with a condition and mirrors it in flat fields', () => {
    const draft = alertRuleInputSchema.parse(SHAPE_A);
    expect(draft.condition).toEqual({ ...SHAPE_A.condition, value: 'error' });
    expect(flattenAlertRule(draft)).toEqual({
      level: ['error'],
      threshold: 50,
      timeWindow: 2,
      emailRecipients: ['ops@example.com'],
    });
  });

  it('takes the flat shape and gives the same flat fields back', () => {
    const draft = alertRuleInputSchema.parse(SHAPE_B);
    expect(draft).toEqual({
      name: 'Errors',
      enabled: false,
      condition: {
        field: 'level',
        operator: 'in',
        value: ['error', 'critical'],
        threshold: 10,
        timeWindow: '5m',
      },
      notifications: [{ type: 'email', config: { recipients: SHAPE_B.emailRecipients } }],
    });
    const { level, threshold, timeWindow, emailRecipients } = flattenAlertRule(draft);
    expect({ level, threshold, timeWindow, emailRecipients }).toEqual({
      level: ['error', 'critical'],
      threshold: 10,
      timeWindow: 5,
      emailRecipients: SHAPE_B.emailRecipients,
    });
  });

  it('a level named twice in the flat shape is one level', () => {
    const { condition } = alertRuleInputSchema.parse({ ...SHAPE_B, level: ['error', 'ERROR'] });
    expect(condition).toMatchObject({ operator: 'equals', value: 'error' });
  });

  it.each<[object, string[]]>([
    [{ operator: 'gte', value: 'warn' }, ['warn', 'error', 'critical']],
    [{ operator: 'not_in', value: ['debug', 'info'] }, ['warn', 'error', 'critical']],
    [{ operator: 'not_equals', value: 'debug' }, ['info', 'warn', 'error', 'critical']],
    [{ operator: 'starts_with', value: 'CRIT' }, ['critical']],
    [{ field: 'service', value: 'error' }, []],
  ])('%j stands for the levels %j', (condition, levels) => {
    expect(flattenAlertRule(alertRuleInputSchema.parse(withCondition(condition))).level).toEqual(levels);
  });

  it.each<[unknown, string]>([
    [null, ''],
    [{ ...SHAPE_A, extra: 1 }, ''],
    [{ ...SHAPE_A, name: '' }, 'name'],
    [{ ...SHAPE_A, name: 'Errors\r\nBcc: x' }, 'name'],
    [{ ...SHAPE_A, name: 'Err\u0000ors' }, 'name'],
    [{ ...SHAPE_A, name: 'Err\u2028ors' }, 'name'],
    [{ ...SHAPE_A, renotifyAfter: '59s' }, 'renotifyAfter'],
    [{ ...SHAPE_A, threshold: 3 }, 'condition'],
    [{ ...SHAPE_A, emailRecipients: [] }, 'notifications'],
    [{ ...SHAPE_A, enabled: undefined }, 'enabled'],
    [{ ...SHAPE_A, notifications: [{ type: 'sms', config: {} }] }, 'notifications.0.type'],
    [
      { ...SHAPE_A, notifications: [{ type: 'email', config: { recipients: ['x'] } }] },
      'notifications.0.config.recipients.0',
    ],
    [
      { ...SHAPE_A, notifications: [{ type: 'email', config: { recipients: ['a@b.c\r\nBcc: d@e.f'] } }] },
      'notifications.0.config.recipients.0',
    ],
    [
      {
        ...SHAPE_A,
        notifications: [1, 2, 3].map((of) => ({
          type: 'email',
          config: { recipients: Array.from({ length: 7 }, (_, n) => `r${n}-${of}@example.com`) },
        })),
      },
      'notifications',
    ],
    [
      { ...SHAPE_A, notifications: [{ type: 'webhook', config: { url: 'ftp://a.b' } }] },
      'notifications.0.config.url',
    ],
    [
      { ...SHAPE_A, notifications: [{ type: 'webhook', config: { url: 'https://u:p@a.b/' } }] },
      'notifications.0.config.url',
    ],
    [withWebhook({ url: 'https://a.b\n/' }), 'notifications.0.config.url'],
    [withWebhook({ headers: { host: 'x' } }), 'notifications.0.config.headers.host'],
    [
      withWebhook({ headers: { 'X-Logpond-Delivery': 'x' } }),
      'notifications.0.config.headers.X-Logpond-Delivery',
    ],
    [withWebhook({ headers: { 'a b': 'x' } }), 'notifications.0.config.headers.a b'],
    [withWebhook({ headers: { A: 'x\r\nB: y' } }), 'notifications.0.config.headers.A'],
    [
      withWebhook({ headers: Object.fromEntries(Array.from({ length: 21 }, (_, n) => [`A${n}`, 'x'])) }),
      'notifications.0.config.headers',
    ],
    [withCondition({ field: 'host' }), 'condition.field'],
    [withCondition({ operator: 'like' }), 'condition.operator'],
    [withCondition({ threshold: 0 }), 'condition.threshold'],
    [withCondition({ timeWindow: '8d' }), 'condition.timeWindow'],
    [withCondition({ timeWindow: '1w' }), 'condition.timeWindow'],
    [withCondition({ value: 'fatal' }), 'condition.value'],
    [withCondition({ value: undefined }), 'condition.value'],
    [withCondition({ operator: 'in' }), 'condition.value'],
    [withCondition({ operator: 'exists' }), 'condition.value'],
    [withCondition({ field: 'metadata.ms', operator: 'gt', value: 'slow' }), 'condition.value'],
    [{ ...SHAPE_B, level: ['fatal'] }, 'level.0'],
    [{ ...SHAPE_B, timeWindow: 10_081 }, 'timeWindow'],
    [{ ...SHAPE_B, emailRecipients: undefined }, 'emailRecipients'],
  ])('%j is refused at %s', (body, path) => {
    expect(pathOf(body)).toBe(path);
  });

  it.each([
    ['notifications', 16_384, (bytes: number) => ({ notifications: fill(bytes, webhooksOf) })],
    ['condition', 8_192, (bytes: number) => ({ condition: fill(bytes, inList, 'é') })],
  ])('%s of %d bytes are taken, of one more refused with both numbers', (path, bytes, make) => {
    expect(pathOf({ ...SHAPE_A, ...make(bytes) })).toBe('accepted');
    const outcome = alertRuleInputSchema.safeParse({ ...SHAPE_A, ...make(bytes + 1) });
    const message = `expected at most ${bytes} bytes of JSON, got ${bytes + 1}`;
    expect(outcome.error?.issues).toMatchObject([{ path: [path], message }]);
  });

  it('can be written as JSON Schema with both shapes', () => {
    const schema = z.toJSONSchema(alertRuleInputSchema, { io: 'input' });
    expect(schema.anyOf).toHaveLength(2);
  });
});
