import { describe, expect, it } from 'vitest';
import { canUseSecureCookie, readCredentials, renderSessionCookie } from './credentials.ts';
import type { Credentials } from './credentials.ts';
import type { Access } from './route.ts';

const TENANT = { kind: 'project', in: 'query', name: 'projectId', role: 'viewer' } as const;
const SESSION: Access = { kind: 'session' };
const READ: Access = { kind: 'apiKeyOrSession', scope: 'query', tenant: TENANT };
const STREAM: Access = { kind: 'apiKeyOrSession', scope: 'stream', tenant: TENANT, allowsQueryToken: true };

function read(access: Access, headers: Record<string, string>, token: string | null = null): Credentials {
  return readCredentials(
    access,
    (name) => headers[name],
    () => token,
  );
}

describe('readCredentials', () => {
  it('takes an API key from X-API-Key or from Bearer lp_…', () => {
    expect(read(READ, { 'x-api-key': 'lp_a' })).toEqual({ apiKey: 'lp_a' });
    expect(read(READ, { authorization: 'bearer lp_a' })).toEqual({ apiKey: 'lp_a' });
  });

  it('takes any other Bearer token for a session, also beside an API key', () => {
    expect(read(SESSION, { authorization: 'Bearer ls_a', 'x-api-key': 'lp_b' })).toEqual({
      session: 'ls_a',
      apiKey: 'lp_b',
    });
  });

  it('takes ?token= on the stream only, and never a session there', () => {
    expect(read(STREAM, {}, 'lp_a')).toEqual({ apiKey: 'lp_a' });
    expect(read(READ, {}, 'lp_a')).toEqual({});
    expect(read(STREAM, {}, 'ls_a')).toEqual({});
  });

  it('takes the session cookie when there is nothing else', () => {
    const cookie = 'a=b; __Host-session=ls_a; c=d';
    expect(read(SESSION, { cookie })).toEqual({ session: 'ls_a', isFromCookie: true });
    expect(read(SESSION, { cookie: 'logpond_session=ls_b' })).toEqual({
      session: 'ls_b',
      isFromCookie: true,
    });
    expect(read(SESSION, { cookie, authorization: 'Bearer ls_z' })).toEqual({ session: 'ls_z' });
  });

  it('notices an Authorization header that is not Bearer', () => {
    expect(read(SESSION, { authorization: 'Basic eDp5' })).toEqual({ hasForeignScheme: true });
    expect(read(SESSION, { authorization: '' })).toEqual({});
  });
});

describe('canUseSecureCookie', () => {
  it('says yes on loopback and over TLS, no on plain HTTP elsewhere', () => {
    for (const host of ['localhost:8080', '127.0.0.1:8080', '127.3.2.1', '[::1]:8080', 'a.localhost']) {
      expect(canUseSecureCookie(host, undefined)).toBe(true);
    }
    for (const host of ['logs.example.org', '10.0.0.1:8080', '127.0.0.1.example.org', undefined]) {
      expect(canUseSecureCookie(host, undefined)).toBe(false);
    }
    expect(canUseSecureCookie('logs.example.org', 'https://logs.example.org')).toBe(true);
    expect(canUseSecureCookie('localhost', 'http://logs.example.org')).toBe(false);
  });

  it('names and marks the cookie accordingly', () => {
    const at = '2026-01-02T03:04:05.000Z';
    expect(renderSessionCookie('ls_a', at, true)).toBe(
      '__Host-session=ls_a; Path=/; HttpOnly; SameSite=Strict; Expires=Fri, 02 Jan 2026 03:04:05 GMT; Secure',
    );
    expect(renderSessionCookie('ls_a', at, false)).toMatch(/^logpond_session=.*(?<!Secure)$/);
  });
});
