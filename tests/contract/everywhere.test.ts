import { readFile, stat } from 'node:fs/promises';
import { listRoutes } from '@logpond/api/route-table';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PASSWORD, expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

describe('contract §3: before the first account exists', () => {
  let api: ContractApi;
  let printed = '';
  beforeAll(async () => {
    api = await openContractApi({ SIGNUP: 'closed' }, { hasWorker: false });
    await api.deps.setup.announce(api.env['SETUP_TOKEN_FILE'] ?? '', (text) => (printed += text));
  });
  afterAll(async () => api[Symbol.asyncDispose]());

  it('every route but health and register answers 503 SETUP_REQUIRED', async () => {
    const routes = listRoutes(api.deps).filter(
      (route) => route.isAtRoot !== true && route.path !== '/auth/register',
    );
    expect(routes.length).toBeGreaterThan(15);
    for (const route of routes) {
      const path = route.path.replace(/:\w+/g, '0199a1b2-0000-7000-8000-000000000001');
      await expectError(await api.call(route.method, path), 503, 'SETUP_REQUIRED');
    }
    expect((await api.call('GET', '/health')).status).toBe(200);
    await expectError(await api.call('GET', '/nothing'), 404, 'NOT_FOUND');
  });

  it('of 20 parallel registrations with the printed setup token one succeeds, and it opens the house', async () => {
    const file = api.env['SETUP_TOKEN_FILE'] ?? '';
    const setupToken = (await readFile(file, 'utf8')).trim();
    expect(printed).toContain(setupToken);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    const form = { email: 'first@example.org', password: PASSWORD, name: 'First' };
    await expectError(await api.call('POST', '/auth/register', { json: form }), 503, 'SETUP_REQUIRED');
    await expectError(
      await api.call('POST', '/auth/register', { json: { ...form, setupToken: 'wrong' } }),
      403,
      'FORBIDDEN',
    );
    const answers = await Promise.all(
      Array.from({ length: 20 }, async (_, n) =>
        api.call('POST', '/auth/register', { json: { ...form, email: `first${n}@example.org`, setupToken } }),
      ),
    );
    const winners = answers.filter((answer) => answer.status === 201);
    expect(winners).toHaveLength(1);
    const session = await expectJson<{ token: string; user: { isAdmin: boolean } }>(
      winners[0] as Response,
      201,
    );
    expect(session.user.isAdmin).toBe(true);
    await expect(stat(file)).rejects.toThrow(/ENOENT/);
    const organizations = await expectJson(
      await api.call('GET', '/organizations', { session: session.token }),
    );
    expect(organizations).toEqual({ organizations: [] });
    await expectError(
      await api.call('POST', '/auth/register', { json: { ...form, email: 'b@example.org' } }),
      403,
      'FORBIDDEN',
    );
  });
});

describe('contract §1: everywhere', () => {
  let api: ContractApi;
  let tenant: TestTenant;
  beforeAll(async () => {
    api = await openContractApi({ BASE_PATH: '/proj' });
    tenant = await api.createTenant('everywhere');
  });
  afterAll(async () => api[Symbol.asyncDispose]());

  it('interface 9: GET /health on the host root says status, timestamp and version and nothing more', async () => {
    const health = await expectJson<Record<string, string>>(await api.call('GET', '/health'));
    expect(Object.keys(health).toSorted()).toEqual(['status', 'timestamp', 'version']);
    expect(health['status']).toBe('ok');
    expect(new Date(health['timestamp'] ?? '').toISOString()).toBe(health['timestamp']);
    expect(await expectJson(await api.call('GET', '/health/live'))).toEqual({ status: 'ok' });
    expect(await expectJson(await api.call('GET', '/health/ready'))).toEqual({
      status: 'ok',
      checks: { redis: 'ok', clickhouse: 'ok' },
    });
  });

  it('every route works behind BASE_PATH, health too', async () => {
    expect((await api.app.request('/proj/health')).status).toBe(200);
    const headers = { 'x-api-key': tenant.apiKey };
    expect((await api.app.request('/proj/api/v1/logs', { headers })).status).toBe(200);
  });

  it('401 without a credential, with a broken one, and with the wrong kind, saying which one is needed', async () => {
    const bodyless = { headers: { 'content-type': 'application/x-nonsense' } };
    await expectError(await api.call('POST', '/ingest', bodyless), 401, 'MISSING_CREDENTIALS');
    await expectError(await api.call('GET', '/logs'), 401, 'MISSING_CREDENTIALS');
    await expectError(await api.call('GET', '/logs?projectId=a&projectId=b'), 401, 'MISSING_CREDENTIALS');
    await expectError(await api.call('GET', '/organizations'), 401, 'MISSING_CREDENTIALS');
    await expectError(
      await api.call('GET', '/organizations', { headers: { authorization: 'Basic eDp5' } }),
      401,
      'MISSING_CREDENTIALS',
    );
    for (const key of ['lp_', 'lp_short', `lp_${'a'.repeat(46)}`, 'nonsense', '\u00e9']) {
      await expectError(await api.call('GET', '/logs', { key }), 401, 'INVALID_API_KEY');
    }
    for (const session of ['ls_', `ls_${'a'.repeat(43)}`, 'eyJhbGciOiJIUzI1NiJ9.e30.x']) {
      await expectError(await api.call('GET', '/organizations', { session }), 401, 'INVALID_TOKEN');
    }
    const keyThere = await expectError(
      await api.call('GET', '/organizations', { key: tenant.apiKey }),
      401,
      'INVALID_TOKEN',
    );
    expect(keyThere.error).toContain('session');
    const sessionThere = await expectError(
      await api.call('POST', '/ingest', { session: tenant.sessionToken }),
      401,
      'INVALID_API_KEY',
    );
    expect(sessionThere.error).toContain('API key');
  });

  it('403 INSUFFICIENT_SCOPE for a key without the scope, before the body is looked at', async () => {
    const { apiKey } = await api.deps.apiKeys.create({ kind: 'system' }, tenant.projectId, {
      name: 'q',
      scopes: ['query'],
    });
    await expectError(
      await api.call('POST', '/ingest', { key: apiKey, body: 'x' }),
      403,
      'INSUFFICIENT_SCOPE',
    );
    await expectError(await api.call('GET', '/logs/stream', { key: apiKey }), 403, 'INSUFFICIENT_SCOPE');
    expect((await api.call('GET', '/logs', { key: apiKey })).status).toBe(200);
  });

  it('an API key is taken from X-API-Key and from Authorization: Bearer lp_…', async () => {
    expect((await api.call('GET', '/logs', { key: tenant.apiKey })).status).toBe(200);
    expect((await api.call('GET', '/logs', { session: tenant.apiKey })).status).toBe(200);
  });

  it('CORS: API-key routes take any origin without credentials, session routes none', async () => {
    const headers = { origin: 'https://app.example.org' };
    const logs = await api.call('GET', '/logs', { headers });
    expect(logs.headers.get('access-control-allow-origin')).toBe('*');
    expect(logs.headers.get('access-control-allow-credentials')).toBeNull();
    expect(logs.headers.get('access-control-expose-headers')).toContain('Retry-After');
    const preflight = await api.call('OPTIONS', '/ingest', {
      headers: { ...headers, 'access-control-request-method': 'POST' },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get('access-control-allow-headers')).toContain('X-API-Key');
    expect(preflight.headers.get('access-control-allow-methods')).toContain('POST');
    for (const path of ['/organizations', '/auth/login', `/projects/${tenant.projectId}/alerts`]) {
      const response = await api.call('OPTIONS', path, { headers });
      expect([response.status, response.headers.get('access-control-allow-origin')]).toEqual([204, null]);
    }
  });

  it('405 with Allow comes before 401', async () => {
    const response = await api.call('DELETE', '/ingest');
    expect(response.headers.get('allow')).toBe('POST, OPTIONS');
    await expectError(response, 405, 'METHOD_NOT_ALLOWED');
  });

  it('OpenAPI 3.1 lists every route with its answers, and a schema for every JSON body', async () => {
    const document = await expectJson<{
      openapi: string;
      paths: Record<string, Record<string, { responses: object; requestBody?: object }>>;
    }>(await api.call('GET', '/openapi.json'));
    expect(document.openapi).toBe('3.1.0');
    for (const route of listRoutes(api.deps)) {
      const path = `${route.isAtRoot === true ? '' : '/api/v1'}${route.path.replace(/:(\w+)/g, '{$1}')}`;
      const operation = document.paths[path]?.[route.method.toLowerCase()];
      expect([path, Object.keys(operation?.responses ?? {})]).toEqual([
        path,
        expect.arrayContaining(Object.keys(route.answers)),
      ]);
      expect(operation?.requestBody === undefined).toBe(route.body === undefined);
    }
  });
});
