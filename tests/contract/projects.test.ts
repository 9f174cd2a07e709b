import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

let api: ContractApi;
let ann: TestTenant;
let bob: TestTenant;
beforeAll(async () => {
  api = await openContractApi({ SECRET_KEYS: `k1:${randomBytes(32).toString('base64')}` });
  ann = await api.createTenant('ann');
  bob = await api.createTenant('bob');
});
afterAll(async () => api[Symbol.asyncDispose]());

describe('contract §3: projects and API keys', () => {
  it('projects are created by admins, listed by organization or all, and hidden from others', async () => {
    const json = { organizationId: ann.organizationId, name: 'Second', retentionDays: 7 };
    const { project } = await expectJson<{ project: Record<string, unknown> }>(
      await api.call('POST', '/projects', { session: ann.sessionToken, json }),
      201,
    );
    expect(project).toEqual({
      id: expect.stringMatching(UUID) as string,
      organizationId: ann.organizationId,
      name: 'Second',
      slug: 'second',
      description: null,
      retentionDays: 7,
      createdAt: expect.stringMatching(ISO) as string,
      updatedAt: expect.stringMatching(ISO) as string,
    });
    const inCapitals = { organizationId: ann.organizationId.toUpperCase(), name: 'Third' };
    const third = await expectJson<{ project: { organizationId: string } }>(
      await api.call('POST', '/projects', { session: ann.sessionToken, json: inCapitals }),
      201,
    );
    expect(third.project.organizationId).toBe(ann.organizationId);
    for (const path of [`/projects?organizationId=${ann.organizationId}`, '/projects']) {
      const { projects } = await expectJson<{ projects: { name: string }[] }>(
        await api.call('GET', path, { session: ann.sessionToken }),
      );
      expect(projects.map(({ name }) => name)).toEqual(['ann', 'Second', 'Third']);
    }
    expect(
      await expectJson(await api.call('GET', `/projects/${ann.projectId}`, { session: ann.sessionToken })),
    ).toHaveProperty('project.retentionDays', 30);
    for (const path of [
      `/projects/${ann.projectId}`,
      `/projects?organizationId=${ann.organizationId}`,
      `/projects/${ann.projectId}/api-keys`,
    ]) {
      await expectError(await api.call('GET', path, { session: bob.sessionToken }), 404, 'NOT_FOUND');
    }
    await expectError(
      await api.call('POST', '/projects', { session: bob.sessionToken, json }),
      404,
      'NOT_FOUND',
    );
    await expectError(
      await api.call('POST', '/projects', { session: ann.sessionToken, json }),
      409,
      'CONFLICT',
    );
    await expectError(
      await api.call('POST', '/projects', { session: ann.sessionToken, json: { ...json, retentionDays: 0 } }),
      400,
      'VALIDATION_ERROR',
    );
    await expectError(
      await api.call('POST', '/projects', { session: ann.sessionToken, json: { name: 'x' } }),
      400,
      'VALIDATION_ERROR',
    );
  });

  it('a key shows its secret once, is listed without it, and is dead within 5 s of its revocation', async () => {
    const path = `/projects/${ann.projectId}/api-keys`;
    const session = ann.sessionToken;
    const created = await expectJson<{ id: string; apiKey: string }>(
      await api.call('POST', path, { session, json: { name: 'ci', scopes: ['query'] } }),
      201,
    );
    expect(created).toEqual({
      id: expect.stringMatching(UUID) as string,
      apiKey: expect.stringMatching(/^lp_[0-9A-Za-z]{46}$/) as string,
      name: 'ci',
      scopes: ['query'],
      expiresAt: null,
      createdAt: expect.stringMatching(ISO) as string,
    });
    const list = await (await api.call('GET', path, { session })).text();
    expect(list).not.toContain(created.apiKey);
    const { apiKeys } = JSON.parse(list) as { apiKeys: Record<string, unknown>[] };
    expect(Object.keys(apiKeys[0] ?? {}).toSorted()).toEqual([
      'createdAt',
      'expiresAt',
      'id',
      'lastUsedAt',
      'name',
      'prefix',
      'scopes',
    ]);
    expect((await api.call('GET', '/logs', { key: created.apiKey })).status).toBe(200);
    await expectError(
      await api.call('DELETE', `${path}/${created.id}`, { session: bob.sessionToken }),
      404,
      'NOT_FOUND',
    );
    await expectError(
      await api.call('DELETE', `/projects/${bob.projectId}/api-keys/${created.id}`, {
        session: bob.sessionToken,
      }),
      404,
      'NOT_FOUND',
    );
    expect((await api.call('DELETE', `${path}/${created.id}`, { session })).status).toBe(204);
    await waitFor(
      'the key to be refused',
      async () => (await api.call('GET', '/logs', { key: created.apiKey })).status === 401,
      5_000,
    );
    await expectError(await api.call('DELETE', `${path}/${created.id}`, { session }), 404, 'NOT_FOUND');
  });

  it('an expired key is refused, and one that would be expired already is not made', async () => {
    const path = `/projects/${ann.projectId}/api-keys`;
    const json = { name: 'brief', expiresAt: new Date(Date.now() + 1_500).toISOString() };
    const { apiKey } = await expectJson<{ apiKey: string }>(
      await api.call('POST', path, { session: ann.sessionToken, json }),
      201,
    );
    expect((await api.call('GET', '/logs', { key: apiKey })).status).toBe(200);
    await waitFor(
      'the key to expire',
      async () => (await api.call('GET', '/logs', { key: apiKey })).status === 401,
      5_000,
    );
    const past = { name: 'late', expiresAt: '2020-01-01T00:00:00Z' };
    await expectError(
      await api.call('POST', path, { session: ann.sessionToken, json: past }),
      400,
      'VALIDATION_ERROR',
    );
  });
});

describe('interface 7 and 8: alert rules', () => {
  const shapeA = {
    name: 'Errors',
    enabled: true,
    condition: { field: 'level', operator: 'equals', value: 'error', threshold: 10, timeWindow: '5m' },
    notifications: [{ type: 'email', config: { recipients: ['ops@example.org'] } }],
  };
  const shapeB = {
    name: 'Flat',
    enabled: false,
    level: ['error', 'critical'],
    threshold: 3,
    timeWindow: 15,
    emailRecipients: ['a@example.org'],
  };
  const common = {
    id: expect.stringMatching(UUID) as string,
    state: 'ok',
    lastTriggeredAt: null,
    createdAt: expect.stringMatching(ISO) as string,
    updatedAt: expect.stringMatching(ISO) as string,
  };

  it('both request shapes are stored and come back with the fields of both', async () => {
    const path = `/projects/${ann.projectId}/alerts`;
    const session = ann.sessionToken;
    const a = await expectJson<{ alertRule: object }>(
      await api.call('POST', path, { session, json: shapeA }),
      201,
    );
    expect(a.alertRule).toEqual({
      ...shapeA,
      ...common,
      projectId: ann.projectId,
      level: ['error'],
      threshold: 10,
      timeWindow: 5,
      emailRecipients: ['ops@example.org'],
    });
    const b = await expectJson<{ alertRule: object }>(
      await api.call('POST', path, { session, json: shapeB }),
      201,
    );
    expect(b.alertRule).toEqual({
      ...shapeB,
      ...common,
      projectId: ann.projectId,
      condition: {
        field: 'level',
        operator: 'in',
        value: ['error', 'critical'],
        threshold: 3,
        timeWindow: '15m',
      },
      notifications: [{ type: 'email', config: { recipients: ['a@example.org'] } }],
    });
    const { alertRules } = await expectJson<{ alertRules: object[] }>(
      await api.call('GET', path, { session }),
    );
    expect(alertRules).toEqual([a.alertRule, b.alertRule]);
  });

  it('a webhook rule comes back without its secret', async () => {
    const path = `/projects/${bob.projectId}/alerts`;
    const webhook = {
      type: 'webhook',
      config: { url: 'https://hooks.example.org/x', secret: 'tell nobody' },
    };
    const text = await (
      await api.call('POST', path, {
        session: bob.sessionToken,
        json: { ...shapeA, notifications: [webhook] },
      })
    ).text();
    expect(text).toContain('hooks.example.org');
    expect(text).not.toContain('tell nobody');
  });

  it('400 naming the field for what is missing, unknown or out of range; 404 for a foreign project', async () => {
    const path = `/projects/${ann.projectId}/alerts`;
    const session = ann.sessionToken;
    const bad: [object, string][] = [
      [{ ...shapeA, name: undefined }, 'name'],
      [{ ...shapeA, extra: 1 }, ''],
      [{ ...shapeA, condition: { ...shapeA.condition, threshold: 0 } }, 'condition.threshold'],
      [{ ...shapeA, condition: { ...shapeA.condition, operator: 'like' } }, 'condition.operator'],
      [{ ...shapeA, condition: { ...shapeA.condition, timeWindow: '8d' } }, 'condition.timeWindow'],
      [{ ...shapeA, notifications: [{ type: 'sms', config: {} }] }, 'notifications.0.type'],
      [{ ...shapeB, level: ['fatal'] }, 'level.0'],
      [{ ...shapeB, emailRecipients: ['not an address'] }, 'emailRecipients.0'],
    ];
    for (const [json, where] of bad) {
      const error = await expectError(
        await api.call('POST', path, { session, json }),
        400,
        'VALIDATION_ERROR',
      );
      expect(error.details?.[0]?.path).toBe(where);
    }
    await expectError(await api.call('GET', path, { session: bob.sessionToken }), 404, 'NOT_FOUND');
    await expectError(
      await api.call('POST', path, { session: bob.sessionToken, json: shapeA }),
      404,
      'NOT_FOUND',
    );
    await expectError(await api.call('GET', path, { key: ann.apiKey }), 401, 'INVALID_TOKEN');
  });
});
