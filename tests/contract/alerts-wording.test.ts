import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRule, pathOf, SHAPE_A, SHAPE_B } from './alerts-fixture.ts';
import type { ShownRule } from './alerts-fixture.ts';
import { expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

let api: ContractApi;
let ann: TestTenant;
beforeAll(async () => {
  api = await openContractApi();
  ann = await api.createTenant('ann');
});
afterAll(async () => api[Symbol.asyncDispose]());

async function ask(method: string, rest: string, json?: unknown): Promise<Response> {
  return api.call(method, pathOf(ann, rest), {
    session: ann.sessionToken,
    ...(json === undefined ? {} : { json }),
  });
}

const condition = (change: object): object => ({
  ...SHAPE_A,
  condition: { ...SHAPE_A.condition, ...change },
});
const webhook = (config: object): object => ({
  ...SHAPE_A,
  notifications: [{ type: 'webhook', config: { url: 'https://a.example/', ...config } }],
});
const LEVELS = 'debug, info, warn, error, critical';

describe('a rule that is refused', () => {
  it.each<[unknown, string]>([
    [[], 'the body: expected an object, got an empty array'],
    [{ ...SHAPE_A, name: 5 }, 'name: expected a text, got 5'],
    [
      { ...SHAPE_A, name: 'a\u0000b' },
      'name: expected a name on one line, without control characters, got "a\\u0000b"',
    ],
    [{ ...SHAPE_A, enabled: 'yes' }, 'enabled: expected true or false, got "yes"'],
    [
      condition({ field: 'host' }),
      'condition.field: expected level, service, message, trace_id or metadata.<path>, got "host"',
    ],
    [condition({ value: 'fatal' }), `condition.value: expected one of ${LEVELS} for equals, got "fatal"`],
    [condition({ value: undefined }), `condition.value: expected one of ${LEVELS} for equals, got nothing`],
    [
      condition({ operator: 'in', value: ['error', 'fatal'] }),
      `condition.value: expected one of ${LEVELS} for in, got "fatal"`,
    ],
    [
      condition({ field: 'metadata.ms', operator: 'gt', value: 'slow' }),
      'condition.value: expected a number for gt, got "slow"',
    ],
    [
      condition({ field: 'message', operator: 'contains', value: 5 }),
      'condition.value: expected a text that is not empty for contains, got 5',
    ],
    [condition({ operator: 'exists' }), 'condition.value: expected no value for exists, got "error"'],
    [
      condition({ value: {} }),
      'condition.value: expected a text, a number, true, false, or an array of 1 to 100 of them, got an object',
    ],
    [condition({ threshold: 0 }), 'condition.threshold: expected a whole number from 1 to 1000000000, got 0'],
    [
      condition({ threshold: '5' }),
      'condition.threshold: expected a whole number from 1 to 1000000000, got "5"',
    ],
    [
      condition({ timeWindow: 5 }),
      'condition.timeWindow: expected <n>s, <n>m, <n>h or <n>d from 1s to 7d, got 5',
    ],
    [
      condition({ field: 'message', operator: 'regex', value: '(' }),
      'condition.value: expected RE2 syntax: missing closing ): got "("',
    ],
    [
      { ...SHAPE_A, renotifyAfter: '1s' },
      'renotifyAfter: expected <n>s, <n>m, <n>h or <n>d from 1m to 7d, got "1s"',
    ],
    [
      { ...SHAPE_B, timeWindow: '5m' },
      'timeWindow: expected a whole number of minutes from 1 to 10080, got "5m"',
    ],
    [{ ...SHAPE_B, level: ['fatal'] }, `level.0: expected one of ${LEVELS}, got "fatal"`],
    [
      { ...SHAPE_B, emailRecipients: ['x'] },
      'emailRecipients.0: expected an e-mail address such as ops@example.org, got "x"',
    ],
    [
      webhook({ url: 'a.example' }),
      'notifications.0.config.url: expected a URL such as https://hooks.example.com/x, got "a.example"',
    ],
    [
      webhook({ headers: { Host: 'b.example' } }),
      'notifications.0.config.headers.Host: expected a header that is not set by Logpond itself, got "Host"',
    ],
    [
      { ...SHAPE_A, notifications: [{ type: 'sms' }] },
      'notifications.0.type: expected one of email, webhook, got "sms"',
    ],
    [
      { ...SHAPE_A, ...SHAPE_B },
      'condition: expected either condition or level, threshold and timeWindow, got both',
    ],
    [
      { ...SHAPE_A, emailRecipients: [] },
      'notifications: expected either notifications or emailRecipients, got both',
    ],
  ])('%j is told what was expected and what came', async (json, sentence) => {
    expect((await expectError(await ask('POST', '', json), 400, 'VALIDATION_ERROR')).error).toBe(sentence);
  });

  it('a header’s value, which may be a secret, is not repeated', async () => {
    const json = webhook({ headers: { Authorization: 'Bearer schlüssel' } });
    const { error, details } = await expectError(await ask('POST', '', json), 400, 'VALIDATION_ERROR');
    expect(error).toContain('expected printable ASCII characters');
    expect(JSON.stringify(details)).not.toContain('schl');
  });

  it.each([
    ['limit=abc', 'limit: expected an integer from 1 to 1000, got "abc"'],
    ['limit=1001', 'limit: expected an integer from 1 to 1000, got "1001"'],
    ['ruleId=abc', 'ruleId: expected a UUID, got "abc"'],
    ['cursor=abc', 'cursor: expected the nextCursor of an answer, got "abc"'],
    ['from=now', 'from: expected an RFC 3339 time such as 2026-01-31T12:00:00Z, got "now"'],
    [
      'from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z',
      'from: expected a time not after to (2026-01-01T00:00:00.000Z), got 2026-01-02T00:00:00.000Z',
    ],
  ])('so is a history of %s', async (query, sentence) => {
    const refused = await expectError(await ask('GET', `/history?${query}`), 400, 'VALIDATION_ERROR');
    expect(refused.error).toBe(sentence);
  });

  it.each<[unknown, string]>([
    [[], 'the body: expected an object, got an empty array'],
    [{ rule: 'x' }, 'rule: expected an object, got "x"'],
    [
      { rule: SHAPE_A, limit: 3 },
      'the body: expected either rule or its fields beside from and to, got rule and "limit"',
    ],
    [
      { rule: condition({ threshold: 0 }) },
      'rule.condition.threshold: expected a whole number from 1 to 1000000000, got 0',
    ],
  ])('so is a preview of %j', async (json, sentence) => {
    const refused = await expectError(await ask('POST', '/preview', json), 400, 'VALIDATION_ERROR');
    expect(refused.error).toBe(sentence);
  });
});

describe('a rule that counts something else than levels', () => {
  it('keeps its condition when it is given levels, and says how to change it', async () => {
    const { id } = await createRule(
      api,
      ann,
      condition({ field: 'metadata.status', operator: 'gte', value: 500 }),
    );
    const refused = await expectError(
      await ask('PATCH', `/${id}`, { level: ['error'] }),
      400,
      'VALIDATION_ERROR',
    );
    expect(refused.error).toBe(
      'level: expected a rule whose condition is on level (send "condition" to change what this one counts), got "metadata.status"',
    );
    const changed = await ask('PATCH', `/${id}`, { threshold: 7, timeWindow: 3 });
    expect(await expectJson(changed)).toMatchObject({
      alertRule: { condition: { field: 'metadata.status', value: 500, threshold: 7, timeWindow: '3m' } },
    });
  });
});

it('a rule that was kept before its webhook was refused can still be read, and deleted', async () => {
  const { id } = await createRule(api, ann, SHAPE_A);
  const notifications = [{ type: 'webhook' as const, config: { url: 'ftp://old.example/' } }];
  const actor = { kind: 'user' as const, id: ann.userId };
  await api.deps.alertRules.update(actor, ann.projectId, id, (draft) => ({ ...draft, notifications }));
  expect(await expectJson(await ask('GET', `/${id}`))).toMatchObject({ alertRule: { notifications } });
  expect((await ask('GET', '')).status).toBe(200);
  expect((await ask('DELETE', `/${id}`)).status).toBe(204);
});

describe('PUT of a rule as it was read', () => {
  it.each<[string, object]>([
    ['nested', SHAPE_A],
    ['flat', SHAPE_B],
    ['on metadata', condition({ field: 'metadata.status', operator: 'exists', value: undefined })],
  ])('changes nothing: %s', async (_form, json) => {
    const created = await createRule(api, ann, json);
    const answer = await ask('PUT', `/${created.id}`, created);
    const { alertRule } = await expectJson<{ alertRule: ShownRule }>(answer);
    expect(alertRule).toEqual({ ...created, updatedAt: alertRule.updatedAt });
  });

  it('takes a change of the condition, and refuses flat fields that say otherwise', async () => {
    const created = await createRule(api, ann, SHAPE_A);
    const path = `/${created.id}`;
    const changed = { ...created, condition: { ...created.condition, threshold: 12 } };
    const refused = await expectError(await ask('PUT', path, changed), 400, 'VALIDATION_ERROR');
    expect(refused.error).toBe(
      'threshold: expected 12 as condition says, got 10; leave threshold out to be sure',
    );
    const taken = await ask('PUT', path, { ...changed, threshold: undefined });
    expect(await expectJson(taken)).toMatchObject({ alertRule: { threshold: 12, id: created.id } });
    expect((await ask('PUT', path, { ...created, threshold: 10, state: 'nonsense' })).status).toBe(200);
    await expectError(await ask('PUT', path, { ...created, version: 1 }), 400, 'VALIDATION_ERROR');
  });
});

describe('the OpenAPI document', () => {
  type Form = { required: string[]; examples?: unknown[]; properties: Record<string, { pattern?: string }> };

  async function readForms(method: string, path: string): Promise<Form[]> {
    const document = await expectJson<{ paths: Record<string, unknown> }>(
      await api.call('GET', '/openapi.json'),
    );
    const operation = (
      document.paths[`/api/v1/projects/{projectId}/alerts${path}`] as Record<string, unknown>
    )[method] as { requestBody: { content: { 'application/json': { schema: { anyOf: Form[] } } } } };
    return operation.requestBody.content['application/json'].schema.anyOf;
  }

  it.each([
    ['post', '', 'POST', ''],
    ['post', '/preview', 'POST', '/preview'],
  ])('has an example of every form that %s %s takes, and each is taken', async (method, path, verb, rest) => {
    const forms = await readForms(method, path);
    expect(forms.length).toBeGreaterThan(1);
    for (const { examples } of forms) {
      expect(examples).toHaveLength(1);
      expect([examples, (await ask(verb, rest, examples?.[0])).status < 300]).toEqual([examples, true]);
    }
  });

  it('lets a client send a bare condition to the preview, and a rule as it was read to PUT', async () => {
    const preview = await readForms('post', '/preview');
    expect(preview.map(({ required }) => required)).toEqual([
      ['condition'],
      ['level', 'threshold', 'timeWindow'],
      ['rule'],
    ]);
    expect(preview[0]?.properties['renotifyAfter']).toBeDefined();
    const created = await createRule(api, ann, SHAPE_A);
    const [nested] = await readForms('put', '/{alertId}');
    expect(Object.keys(nested?.properties ?? {})).toEqual(expect.arrayContaining(Object.keys(created)));
  });
});
