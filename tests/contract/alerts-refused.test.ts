import { randomBytes } from 'node:crypto';
import { NotificationQueue } from '@logpond/db/notification-queue';
import type { TestJob } from '@logpond/db/notification-job';
import { configSchema } from '@logpond/api/config';
import { readConfig } from '@logpond/runtime/env';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRule, join, pathOf, readRuleChanges, SHAPE_A, SHAPE_B } from './alerts-fixture.ts';
import type { ShownRule } from './alerts-fixture.ts';
import { expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

const NOBODY = '0199a1b2-0000-7000-8000-000000000001';

let api: ContractApi;
let ann: TestTenant;
let bob: TestTenant;
let vic: TestTenant;
beforeAll(async () => {
  api = await openContractApi({ SECRET_KEYS: `k1:${randomBytes(32).toString('base64')}` });
  [ann, bob, vic] = [
    await api.createTenant('ann'),
    await api.createTenant('bob'),
    await api.createTenant('vic'),
  ];
  await join(api, vic, ann, 'viewer');
});
afterAll(async () => api[Symbol.asyncDispose]());

async function ask(method: string, rest: string, json?: object, who = ann): Promise<Response> {
  return api.call(method, pathOf(ann, rest), {
    session: who.sessionToken,
    ...(json === undefined ? {} : { json }),
  });
}

async function change(method: 'PATCH' | 'PUT', id: string, json: object): Promise<ShownRule> {
  const answer = await expectJson<{ alertRule: ShownRule }>(await ask(method, `/${id}`, json));
  return answer.alertRule;
}

describe('what a change of a rule is refused for', () => {
  let id: string;
  beforeAll(async () => {
    ({ id } = await createRule(api, ann, SHAPE_A));
  });

  const recipients = Array.from({ length: 11 }, (_, n) => `r${n}@example.org`);
  const webhook = (config: object): object => ({
    notifications: [{ type: 'webhook', config: { url: 'https://a.example/', ...config } }],
  });
  it.each<[object, string, string]>([
    [{}, '', 'expected at least one field to change, got none'],
    [{ id: NOBODY }, '', 'expected only the fields name, enabled,'],
    [{ state: 'ok' }, '', ', got "state"'],
    [{ condition: { limit: 3 } }, 'condition', 'got "limit"'],
    [{ threshold: 0 }, 'threshold', 'expected a whole number from 1 to 1000000000, got 0'],
    [{ timeWindow: 0.5 }, 'timeWindow', 'expected a whole number of minutes from 1 to 10080, got 0.5'],
    [{ condition: { timeWindow: '8d' } }, 'condition.timeWindow', 'from 1s to 7d, got "8d"'],
    [
      { condition: { operator: 'in' } },
      'condition.value',
      'expected an array with one of debug, info, warn, error, critical for in, got "error"',
    ],
    [
      { condition: { operator: 'gt', field: 'metadata.ms' } },
      'condition.value',
      'expected a number for gt, got "error"',
    ],
    [{ condition: { field: 'service', operator: 'regex', value: '(a' } }, 'condition.value', 'RE2'],
    [{ condition: { field: 'message', operator: 'regex', value: '(?=a)' } }, 'condition.value', 'RE2'],
    [{ condition: { threshold: 3 }, level: ['error'] }, 'condition', 'expected either condition or level'],
    [{ notifications: [], emailRecipients: [] }, 'notifications', 'expected either notifications or email'],
    [
      { emailRecipients: ['x'] },
      'emailRecipients.0',
      'expected an e-mail address such as ops@example.org, got "x"',
    ],
    [
      { notifications: [1, 2].map(() => ({ type: 'email', config: { recipients } })) },
      'notifications',
      'expected at most 20 recipients in a rule, got 22',
    ],
    [webhook({ secret: '***' }), 'notifications.0.config.secret', 'expected the value itself'],
    [webhook({ headers: { A: '***' } }), 'notifications.0.config.headers.A', 'expected the value itself'],
    [{ renotifyAfter: '59s' }, 'renotifyAfter', 'expected <n>s, <n>m, <n>h or <n>d from 1m to 7d, got "59s"'],
    [{ name: 'a\nb' }, 'name', 'expected a name on one line, without control characters, got "a\\nb"'],
    [webhook({ url: 'ftp://a.example/' }), 'notifications.0.config.url', 'expected an https or http URL'],
    [
      webhook({ headers: { 'Content-Type': 'text/plain' } }),
      'notifications.0.config.headers.Content-Type',
      'expected a header that is not set by Logpond itself, got "Content-Type"',
    ],
  ])('PATCH %j is refused at %j', async (json, path, sentence) => {
    const { error, details } = await expectError(await ask('PATCH', `/${id}`, json), 400, 'VALIDATION_ERROR');
    expect(details?.[0]?.path).toBe(path);
    expect(error).toContain(sentence);
  });

  it('a pattern that RE2 does not take, or *** for a secret, is refused in POST, PUT and preview too', async () => {
    const pattern = { ...SHAPE_A, condition: { ...SHAPE_A.condition, operator: 'regex', value: 'a(?!b)' } };
    for (const [method, rest] of [
      ['POST', ''],
      ['PUT', `/${id}`],
      ['POST', '/preview'],
    ] as const) {
      const { details } = await expectError(await ask(method, rest, pattern), 400, 'VALIDATION_ERROR');
      expect(details?.[0]?.path).toBe('condition.value');
    }
    for (const [method, rest] of [
      ['POST', ''],
      ['PUT', `/${id}`],
    ] as const) {
      const masked = { ...SHAPE_A, ...webhook({ secret: '***' }) };
      const { details } = await expectError(await ask(method, rest, masked), 400, 'VALIDATION_ERROR');
      expect(details?.[0]?.path).toBe('notifications.0.config.secret');
    }
    expect(await expectJson(await ask('GET', `/${id}`))).toMatchObject({ alertRule: { name: 'Errors' } });
  });

  it('a 501st rule of a project is 409', async () => {
    const session = bob.sessionToken;
    for (let n = 0; n < 500; n += 50) {
      await Promise.all(Array.from({ length: 50 }, async () => createRule(api, bob, SHAPE_B)));
    }
    const refused = await api.call('POST', pathOf(bob), { session, json: SHAPE_B });
    const { error } = await expectError(refused, 409, 'CONFLICT');
    expect(error).toBe('expected at most 500 alert rules in a project, got one more');
  });
});

describe('rules with a regular expression', () => {
  const condition = {
    field: 'message',
    operator: 'regex',
    value: 'time(d )?out',
    threshold: 1,
    timeWindow: '1m',
  };
  const withPattern = { ...SHAPE_A, condition };

  it('are at most 20 in a project, disabled ones apart; one of the 20 can still be changed', async () => {
    const made = await Promise.all(Array.from({ length: 19 }, async () => createRule(api, ann, withPattern)));
    const disabled = await createRule(api, ann, { ...withPattern, enabled: false });
    const last = await createRule(api, ann, withPattern);
    for (const [method, rest, json] of [
      ['POST', '', withPattern],
      ['PATCH', `/${disabled.id}`, { enabled: true }],
    ] as const) {
      const { error } = await expectError(await ask(method, rest, json), 409, 'CONFLICT');
      expect(error).toContain('expected at most 20 enabled alert rules with the operator regex');
    }
    expect(await change('PATCH', last.id, { name: 'Renamed' })).toMatchObject({ name: 'Renamed' });
    expect((await ask('DELETE', `/${made[0]?.id}`)).status).toBe(204);
    expect(await change('PATCH', disabled.id, { enabled: true })).toMatchObject({ enabled: true });
  });
});

describe('S56: secrets of webhooks', () => {
  const url = 'https://hooks.example.org/x';
  const secret = 'tell nobody at all';
  const token = 'Bearer tell nobody either';
  const json = {
    ...SHAPE_A,
    notifications: [{ type: 'webhook', config: { url, secret, headers: { Authorization: token } } }],
  };
  const masked = [{ type: 'webhook', config: { url, secret: '***', headers: { Authorization: '***' } } }];

  it('are shown as *** to everybody, and stay when the rule is sent back as it was shown', async () => {
    const { id } = await createRule(api, ann, json);
    const keptBefore = await readSealed(id);
    for (const who of [ann, vic]) {
      const answer = await expectJson<{ alertRule: ShownRule }>(await ask('GET', `/${id}`, undefined, who));
      expect(answer.alertRule.notifications).toEqual(masked);
    }
    expect((await change('PUT', id, { ...SHAPE_A, notifications: masked })).notifications).toEqual(masked);
    expect((await change('PATCH', id, { notifications: masked })).notifications).toEqual(masked);
    expect((await change('PATCH', id, { name: 'x' })).notifications).toEqual(masked);
    expect(await readSealed(id)).toEqual(keptBefore);
    for (const text of await readRuleChanges(api)) {
      expect(text).not.toContain('tell nobody');
    }
  });

  it('on a server without SECRET_KEYS are refused by the name of the setting, and webhooks without work', async () => {
    await using bare = await openContractApi();
    const tenant = await bare.createTenant('bare');
    const session = tenant.sessionToken;
    const refused = await bare.call('POST', pathOf(tenant), { session, json });
    const { error, details } = await expectError(refused, 400, 'VALIDATION_ERROR');
    expect(error).toContain('its setting SECRET_KEYS');
    expect(details?.[0]?.path).toBe('notifications.0.config.headers.Authorization');
    const plain = { ...SHAPE_A, notifications: [{ type: 'webhook', config: { url } }] };
    expect((await createRule(bare, tenant, plain)).notifications).toEqual(plain.notifications);
  });

  async function readSealed(id: string): Promise<unknown> {
    return (await api.deps.alertRules.find(ann.projectId, id))?.notifications;
  }
});

describe('POST …/alerts/:alertId/test', () => {
  it('answers what each recipient’s server said, and a second one within 10 s is 429', async () => {
    const url = 'https://hooks.example.org/x';
    const notifications = [...SHAPE_A.notifications, { type: 'webhook', config: { url } }];
    const { id } = await createRule(api, ann, { ...SHAPE_A, notifications });
    await using queue = await NotificationQueue.open(readConfig(configSchema, api.env));
    const taken: TestJob[] = [];
    await using _worker = await queue.work(
      async (job) => {
        if (job.kind !== 'test') return { kind: 'failed', reason: 'expected a test' };
        taken.push(job.test);
        const { channel, target } = job.test;
        const answer = channel === 'email' ? '250 queued' : '500';
        return {
          kind: 'done',
          test: { channel, target, status: channel === 'email' ? 'sent' : 'failed', answer },
        };
      },
      { concurrency: 2, onError: () => {} },
    );
    expect(await expectJson(await ask('POST', `/${id}/test`))).toEqual({
      deliveries: [
        { channel: 'email', target: 'ops@example.org', status: 'sent', answer: '250 queued' },
        { channel: 'webhook', target: url, status: 'failed', answer: '500' },
      ],
    });
    expect(taken.map(({ rule }) => rule.id)).toEqual([id, id]);
    const { error } = await expectError(await ask('POST', `/${id}/test`), 429, 'RATE_LIMITED');
    expect(error).toMatch(/^expected 10 s between two tests of a rule, got one \d+ s too early$/);
    expect(taken).toHaveLength(2);
  });

  it('503 when no alert worker takes it within 15 s', async () => {
    const { id } = await createRule(api, ann, SHAPE_A);
    const { error } = await expectError(await ask('POST', `/${id}/test`), 503, 'UNAVAILABLE');
    expect(error).toBe('no alert worker answered within 15 s; is one running?');
  });
});
