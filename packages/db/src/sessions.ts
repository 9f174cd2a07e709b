import { hash, randomBytes } from 'node:crypto';
import { childrenKey, documentKey } from './control-store.ts';
import type { ControlStore, Versioned, Write } from './control-store.ts';

const SESSION_TTL_MS = 30 * 86_400_000;
/** Open sessions of one user; the next login ends the oldest. */
const SESSIONS_PER_USER_MAX = 100;
const TOKEN_SHAPE = /^ls_[A-Za-z0-9_-]{43}$/;

export type SessionDocument = Versioned & {
  userId: string;
  createdAt: string;
  expiresAt: string;
  ip: string | null;
};

/** A session that is yet to be written, together with whatever lets the user in. */
type SessionDraft = { token: string; expiresAt: string; writes: Write[] };

/**
 * A new session, 30 days from now whatever happens. The token is `ls_` and 256 random bits; only its SHA-256 is
 * kept.
 */
export async function draftSession(
  control: ControlStore,
  session: { userId: string; ip: string | undefined; nowMs: number },
): Promise<SessionDraft> {
  const { userId, ip, nowMs } = session;
  const token = `ls_${randomBytes(32).toString('base64url')}`;
  const id = hashSessionToken(token);
  const expiresAtMs = nowMs + SESSION_TTL_MS;
  const expiresAt = new Date(expiresAtMs).toISOString();
  const createdAt = new Date(nowMs).toISOString();
  const document: SessionDocument = { version: 1, userId, createdAt, expiresAt, ip: ip ?? null };
  const ofUser = sessionsKey(userId);
  const writes: Write[] = [
    { op: 'put', key: documentKey('session', id), document, ttlMs: SESSION_TTL_MS },
    { op: 'add', key: ofUser, member: id, score: expiresAtMs },
  ];
  const open = await control.listChildren(ofUser);
  for (const ended of open.slice(0, Math.max(0, open.length - SESSIONS_PER_USER_MAX + 1))) {
    writes.push(...endSession(ended, userId));
  }
  return { token, expiresAt, writes };
}

/** The writes that end one session; `id` is the hash of its token. */
export function endSession(id: string, userId: string): Write[] {
  return [
    { op: 'delete', key: documentKey('session', id) },
    { op: 'remove', key: sessionsKey(userId), member: id },
  ];
}

/** Id of the session that a token stands for, or undefined when it cannot be one. */
export function parseSessionToken(token: string): string | undefined {
  return TOKEN_SHAPE.test(token) ? hashSessionToken(token) : undefined;
}

function hashSessionToken(token: string): string {
  return hash('sha256', token, 'hex');
}

function sessionsKey(userId: string): string {
  return childrenKey('sessions', 'user', userId);
}
