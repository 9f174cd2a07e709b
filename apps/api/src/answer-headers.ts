import type { Access } from './route.ts';

const ALLOWED_HEADERS =
  'Authorization, X-API-Key, Content-Type, Content-Encoding, Idempotency-Key, Prefer, Last-Event-ID, Cache-Control, X-Request-Id';
const EXPOSED_HEADERS = 'X-Request-Id, Retry-After, RateLimit, RateLimit-Policy, Idempotency-Replayed';
const PREFLIGHT_MAX_AGE_S = 600;

/**
 * The headers that every answer of a kind of route carries. Routes that take an API key may be called from
 * any origin, without a browser's own credentials (S34); all others only from the dashboard's own.
 */
export function baseHeadersOf(
  access: Access | undefined,
  publicUrl: string | undefined,
): Record<string, string> {
  return {
    'Cache-Control': 'no-store',
    'X-Content-Type-Options': 'nosniff',
    'Referrer-Policy': 'no-referrer',
    ...(publicUrl?.startsWith('https:') ? { 'Strict-Transport-Security': 'max-age=31536000' } : {}),
    ...(isOpenToOrigins(access)
      ? { 'Access-Control-Allow-Origin': '*', 'Access-Control-Expose-Headers': EXPOSED_HEADERS }
      : {}),
  };
}

export function isOpenToOrigins(access: Access | undefined): boolean {
  return access?.kind === 'apiKey' || access?.kind === 'apiKeyOrSession';
}

/** What a preflight is told beside the base headers. */
export function preflightHeaders(methods: string): Record<string, string> {
  return {
    'Access-Control-Allow-Methods': methods,
    'Access-Control-Allow-Headers': ALLOWED_HEADERS,
    'Access-Control-Max-Age': String(PREFLIGHT_MAX_AGE_S),
  };
}

/** A caller's own request id is kept when it is harmless in a log line and a header. */
export function chooseRequestId(sent: string | undefined): string {
  return sent !== undefined && /^[A-Za-z0-9._-]{8,64}$/.test(sent) ? sent : crypto.randomUUID();
}
