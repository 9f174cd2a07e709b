import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PASSWORD, expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const NOBODY = '0199a1b2-0000-7000-8000-000000000001';

type Session = {
  token: string;
  expiresAt: string;
  user: { id: string; email: string };
  session: { token: string };
};

let api: ContractApi;
let ann: TestTenant;
let bob: TestTenant;
beforeAll(async () => {
  api = await openContractApi({ SIGNUP: 'open' });
  ann = await api.createTenant('ann');
  bob = await api.createTenant('bob');
});
afterAll(async () => api[Symbol.asyncDispose]());

describe('interface 1: POST /auth/login', () => {
  it('200 with the token twice, when it ends, the user, and a cookie that works', async () => {
    const response = await api.call('POST', '/auth/login', {
      json: { email: 'ANN@example.org', password: PASSWORD },
      headers: { host: 'localhost' },
    });
    const cookie = response.headers.get('set-cookie') ?? '';
    const answer = await expectJson<Session>(response);
    expect(answer.token).toMatch(/^ls_[A-Za-z0-9_-]{43}$/);
    expect(answer.session).toEqual({ token: answer.token, expiresAt: answer.expiresAt });
    expect(answer.user).toEqual({ id: ann.userId, email: 'ann@example.org', name: 'ann', isAdmin: false });
    expect(Date.parse(answer.expiresAt) - Date.now()).toBeGreaterThan(29.9 * 86_400_000);
    expect(cookie).toMatch(
      /^__Host-session=ls_[^;]+; Path=\/; HttpOnly; SameSite=Strict; Expires=[^;]+; Secure$/,
    );
    const asCookie = { headers: { cookie: cookie.split(';')[0] ?? '' } };
    expect((await api.call('GET', '/auth/me', asCookie)).status).toBe(200);
    const foreign = { headers: { ...asCookie.headers, 'sec-fetch-site': 'cross-site' } };
    await expectError(
      await api.call('POST', '/organizations', { ...foreign, json: { name: 'x' } }),
      403,
      'FORBIDDEN',
    );
  });

  it('a wrong password and an unknown e-mail get the same 401', async () => {
    const wrong = await expectError(
      await api.call('POST', '/auth/login', { json: { email: ann.email, password: 'x' } }),
      401,
      'INVALID_CREDENTIALS',
    );
    const unknown = await expectError(
      await api.call('POST', '/auth/login', { json: { email: 'no@example.org', password: 'x' } }),
      401,
      'INVALID_CREDENTIALS',
    );
    expect({ ...wrong, requestId: '' }).toEqual({ ...unknown, requestId: '' });
  });

  it('400 for fields that are missing, of another type, or unknown', async () => {
    for (const json of [
      {},
      { email: ann.email },
      { email: 1, password: 'x' },
      { email: 'a', password: 'b', x: 1 },
      [],
    ]) {
      await expectError(await api.call('POST', '/auth/login', { json }), 400, 'VALIDATION_ERROR');
    }
    await expectError(
      await api.call('POST', '/auth/login', { body: '{', headers: { 'content-type': 'application/json' } }),
      400,
      'INVALID_JSON',
    );
    const form = await api.call('POST', '/auth/login', { body: 'email=a' });
    expect((await expectError(form, 415, 'UNSUPPORTED_MEDIA_TYPE')).error).toContain('application/json');
  });
});

describe('contract §3: register, me, logout', () => {
  it('201 in the shape of login with SIGNUP=open, 409 for a taken address, 400 for a short password', async () => {
    const form = { email: 'carla@example.org', password: PASSWORD, name: 'Carla' };
    const session = await expectJson<Session>(await api.call('POST', '/auth/register', { json: form }), 201);
    expect(Object.keys(session).toSorted()).toEqual(['expiresAt', 'session', 'token', 'user']);
    await expectError(
      await api.call('POST', '/auth/register', { json: { ...form, email: 'Carla@Example.org' } }),
      409,
      'CONFLICT',
    );
    await expectError(
      await api.call('POST', '/auth/register', {
        json: { ...form, email: 'd@example.org', password: 'short' },
      }),
      400,
      'VALIDATION_ERROR',
    );
  });

  it('logout ends the session at once and clears the cookies', async () => {
    const login = await api.call('POST', '/auth/login', { json: { email: bob.email, password: PASSWORD } });
    const { token } = await expectJson<Session>(login);
    expect(await expectJson(await api.call('GET', '/auth/me', { session: token }))).toHaveProperty(
      'user.email',
      bob.email,
    );
    const logout = await api.call('POST', '/auth/logout', { session: token });
    expect([logout.status, await logout.text()]).toEqual([204, '']);
    expect(logout.headers.getSetCookie().map((cookie) => /Max-Age=0/.test(cookie))).toEqual([true, true]);
    await expectError(await api.call('GET', '/auth/me', { session: token }), 401, 'INVALID_TOKEN');
  });
});

describe('interface 2: organizations', () => {
  it("GET lists the caller's own with the role in each, and no others", async () => {
    const { organizations } = await expectJson<{ organizations: Record<string, unknown>[] }>(
      await api.call('GET', '/organizations', { session: ann.sessionToken }),
    );
    expect(organizations).toEqual([
      {
        id: ann.organizationId,
        name: 'ann',
        slug: 'ann',
        description: null,
        role: 'owner',
        createdAt: expect.stringMatching(ISO) as string,
        updatedAt: expect.stringMatching(ISO) as string,
      },
    ]);
  });

  it('POST 201, 409 for a taken slug, 400 for unknown keys', async () => {
    const { organization } = await expectJson<{ organization: Record<string, string> }>(
      await api.call('POST', '/organizations', {
        session: ann.sessionToken,
        json: { name: 'Ännä & Co', description: 'x' },
      }),
      201,
    );
    expect(organization['id']).toMatch(UUID);
    expect(organization['role']).toBe('owner');
    expect(organization['slug']).toMatch(/^[a-z0-9]+(-[a-z0-9]+)*$/);
    const same = { name: 'Other', slug: organization['slug'] };
    await expectError(
      await api.call('POST', '/organizations', { session: bob.sessionToken, json: same }),
      409,
      'CONFLICT',
    );
    await expectError(
      await api.call('POST', '/organizations', {
        session: ann.sessionToken,
        json: { name: 'x', owner: 'me' },
      }),
      400,
      'VALIDATION_ERROR',
    );
  });

  it('GET /organizations/:id: own 200; foreign, missing and malformed ids the same 404', async () => {
    const own = await expectJson<{ organization: { id: string } }>(
      await api.call('GET', `/organizations/${ann.organizationId.toUpperCase()}`, {
        session: ann.sessionToken,
      }),
    );
    expect(own.organization.id).toBe(ann.organizationId);
    const errors = [];
    for (const id of [bob.organizationId, NOBODY, 'x:y']) {
      errors.push(
        (
          await expectError(
            await api.call('GET', `/organizations/${id}`, { session: ann.sessionToken }),
            404,
            'NOT_FOUND',
          )
        ).error,
      );
    }
    expect(new Set(errors).size).toBe(1);
  });
});
