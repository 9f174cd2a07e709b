import type { Access } from './route.ts';

/** What a request brought to prove who it is; nothing here is checked yet. */
export type Credentials = {
  /** X-API-Key, a Bearer `lp_…`, or where the route allows it `?token=lp_…`. */
  apiKey?: string;
  /** Any other Bearer token. */
  session?: string;
  /** The session came from a cookie, which a browser sends unasked. */
  isFromCookie?: boolean;
  /** An Authorization header that is not Bearer. */
  hasForeignScheme?: boolean;
};

const KEY_PREFIX = 'lp_';
/** Over TLS and on loopback; the prefix makes the browser insist on Secure and Path=/. */
const SECURE_COOKIE = '__Host-session';
const PLAIN_COOKIE = 'logpond_session';

type HeaderReader = (name: string) => string | undefined;

/** Collects the credentials of a request as far as the route's policy knows them. */
export function readCredentials(
  access: Access,
  header: HeaderReader,
  queryToken: () => string | null,
): Credentials {
  const found: Credentials = {};
  const key = header('x-api-key')?.trim();
  if (key) found.apiKey = key;
  readAuthorization(header('authorization'), found);
  if (access.kind === 'apiKeyOrSession' && access.allowsQueryToken === true && found.apiKey === undefined) {
    const token = queryToken();
    // A session token never stands in a URL (S14).
    if (token?.startsWith(KEY_PREFIX)) found.apiKey = token;
  }
  if (found.session === undefined && found.apiKey === undefined) {
    const cookie = readSessionCookie(header('cookie'));
    if (cookie !== undefined) {
      found.session = cookie;
      found.isFromCookie = true;
    }
  }
  return found;
}

function readAuthorization(authorization: string | undefined, found: Credentials): void {
  if (authorization === undefined || authorization.trim() === '') return;
  const token = /^Bearer\s+(\S+)\s*$/i.exec(authorization)?.[1];
  if (token === undefined) found.hasForeignScheme = true;
  else if (token.startsWith(KEY_PREFIX)) found.apiKey ??= token;
  else found.session = token;
}

function readSessionCookie(cookies: string | undefined): string | undefined {
  if (cookies === undefined) return undefined;
  for (const name of [SECURE_COOKIE, PLAIN_COOKIE]) {
    for (const pair of cookies.split(';')) {
      const [key = '', value = ''] = pair.trim().split('=', 2);
      if (key === name && value !== '') return value;
    }
  }
  return undefined;
}

/** Whether a cookie may be marked Secure: over TLS, and on loopback, which browsers trust like TLS. */
export function canUseSecureCookie(host: string | undefined, publicUrl: string | undefined): boolean {
  if (publicUrl !== undefined) return publicUrl.startsWith('https:');
  const name = (host ?? '').replace(/:\d+$/, '').toLowerCase();
  return (
    name === 'localhost' ||
    name.endsWith('.localhost') ||
    name === '[::1]' ||
    /^127(\.\d{1,3}){3}$/.test(name)
  );
}

/** Set-Cookie for a fresh session, ending when the session does. */
export function renderSessionCookie(token: string, expiresAt: string, isSecure: boolean): string {
  const expires = new Date(expiresAt).toUTCString();
  return `${isSecure ? SECURE_COOKIE : PLAIN_COOKIE}=${token}; Path=/; HttpOnly; SameSite=Strict; Expires=${expires}${isSecure ? '; Secure' : ''}`;
}

/** Set-Cookie that removes both forms; a browser ignores the Secure one on plain HTTP. */
export function renderClearedCookies(): string[] {
  const gone = '=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0';
  return [`${SECURE_COOKIE}${gone}; Secure`, `${PLAIN_COOKIE}${gone}`];
}
