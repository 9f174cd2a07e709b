import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import { ApiError } from '@logpond/schema/api-error';
import { childrenKey, documentKey, indexKey } from './control-store.ts';
import type { Actor, Change, Check, ControlStore, Versioned, Write } from './control-store.ts';
import { PasswordHasher, checkNewPassword } from './passwords.ts';
import { draftSession, endSession, parseSessionToken } from './sessions.ts';
import type { SessionDocument } from './sessions.ts';
import { createUuidV7 } from './uuid-v7.ts';

export type User = { id: string; email: string; name: string; isAdmin: boolean; createdAt: string };

/** What a login hands out; the token is shown this once. */
export type SessionGrant = { token: string; expiresAt: string; user: User };

type NewUser = { email: string; password: string; name: string; isAdmin: boolean };
type UserDocument = Versioned & User & { passwordHash: string; updatedAt: string };
type SetupTokenDocument = Versioned & { tokenHash: string; expiresAt: string };
/** A user to be written: `isFree` is the check that nobody has the e-mail address. */
type UserDraft = { user: User; isFree: Check; writes: Write[] };

const SETUP_TOKEN_TTL_MS = 3_600_000;
const RACES_MAX = 5;
const ALL_USERS = childrenKey('users', 'installation', 'all');
const SETUP_TOKEN = documentKey('setup-token', 'current');

/** Users, their passwords and their sessions. */
export class Accounts {
  readonly #control: ControlStore;
  readonly #now: () => number;
  readonly #hasher = new PasswordHasher();

  constructor(control: ControlStore, options: { now?: () => number } = {}) {
    this.#control = control;
    this.#now = options.now ?? Date.now;
  }

  /** Whether the first account exists. */
  async hasUsers(): Promise<boolean> {
    return this.#control.has(ALL_USERS);
  }

  /**
   * Makes the token that the first registration needs: 256 bits, base64url, good for 1 h; the former one is void.
   *
   * @throws {ApiError} `CONFLICT` when there is an account already.
   */
  async issueSetupToken(): Promise<string> {
    const token = randomBytes(32).toString('base64url');
    for (let race = 0; race < RACES_MAX; race += 1) {
      const former = await this.#control.read<SetupTokenDocument>('setup-token', 'current');
      const atMs = this.#now();
      const document: SetupTokenDocument = {
        version: (former?.version ?? 0) + 1,
        tokenHash: hash('sha256', token, 'hex'),
        expiresAt: new Date(atMs + SETUP_TOKEN_TTL_MS).toISOString(),
      };
      const noUser: Check = { op: 'absent', key: ALL_USERS };
      const outcome = await this.#control.transact({
        atMs,
        checks: [noUser, isUnchanged(former)],
        writes: [{ op: 'put', key: SETUP_TOKEN, document, ttlMs: SETUP_TOKEN_TTL_MS }],
        change: {
          actor: { kind: 'system' },
          action: 'setup-token.issue',
          target: { kind: 'setup-token', id: 'current' },
        },
      });
      if (outcome.committed) return token;
      if (outcome.failed === noUser) break;
    }
    throw new ApiError('CONFLICT', { public: 'the first account exists already' });
  }

  /**
   * Registers a user and logs in. The first account is the administrator and needs the setup token, which is
   * consumed in the same step; later ones need open sign-up.
   *
   * @throws {ApiError} `SETUP_REQUIRED` without a setup token while there is no account; `FORBIDDEN` with a wrong
   * one, or when sign-up is closed; `CONFLICT` when the e-mail address is taken; `VALIDATION_ERROR` for the password.
   */
  async register(
    actor: Actor,
    input: { email: string; password: string; name: string; setupToken?: string | undefined },
    options: { signup: 'open' | 'closed' },
  ): Promise<SessionGrant> {
    const gate = (await this.hasUsers())
      ? openSignup(options.signup)
      : await this.#openSetup(input.setupToken);
    const draft = await this.#draftUser({ ...input, isAdmin: gate.isFirst });
    const atMs = this.#now();
    const session = await draftSession(this.#control, { userId: draft.user.id, ip: actor.ip, nowMs: atMs });
    const outcome = await this.#control.transact({
      atMs,
      checks: [...gate.checks, draft.isFree],
      writes: [...gate.writes, ...draft.writes, ...session.writes],
      change: describeUser(actor, 'user.register', draft.user),
    });
    if (!outcome.committed) throw outcome.failed === draft.isFree ? emailTaken() : setupTokenRefused();
    return { token: session.token, expiresAt: session.expiresAt, user: draft.user };
  }

  /**
   * Creates a user without logging in.
   *
   * @throws {ApiError} `CONFLICT` when the e-mail address is taken; `VALIDATION_ERROR` for the password.
   */
  async createUser(actor: Actor, input: NewUser): Promise<User> {
    const draft = await this.#draftUser(input);
    const outcome = await this.#control.transact({
      atMs: this.#now(),
      checks: [draft.isFree],
      writes: draft.writes,
      change: describeUser(actor, 'user.create', draft.user),
    });
    if (!outcome.committed) throw emailTaken();
    return draft.user;
  }

  /**
   * Opens a session; undefined when e-mail or password is wrong, after the same time for both.
   *
   * @throws {ApiError} `RATE_LIMITED` when too many passwords are being checked.
   */
  async login(email: string, password: string, ip?: string): Promise<SessionGrant | undefined> {
    for (let race = 0; race < RACES_MAX; race += 1) {
      const account = await this.#control.readByIndex<UserDocument>('user', 'email', foldEmail(email));
      const isRight = await this.#hasher.verify(account?.passwordHash, password);
      if (account === undefined || !isRight) return undefined;
      const grant = await this.#openSession(account, password, ip);
      if (grant !== undefined) return grant;
    }
    throw new ApiError('CONFLICT', { public: 'the account kept changing during the login; try again' });
  }

  /** The user of a session token, or undefined when it is malformed, unknown, ended or expired. */
  async findSession(token: string): Promise<{ user: User; expiresAt: string } | undefined> {
    const id = parseSessionToken(token);
    const session = id === undefined ? undefined : await this.#control.read<SessionDocument>('session', id);
    if (session === undefined || Date.parse(session.expiresAt) <= this.#now()) return undefined;
    const account = await this.#control.read<UserDocument>('user', session.userId);
    return account && { user: viewUser(account), expiresAt: session.expiresAt };
  }

  /** Ends a session; nothing happens when there is none. */
  async logout(token: string): Promise<void> {
    const id = parseSessionToken(token);
    const session = id === undefined ? undefined : await this.#control.read<SessionDocument>('session', id);
    if (id === undefined || session === undefined) return;
    await this.#control.transact({
      atMs: this.#now(),
      checks: [],
      writes: endSession(id, session.userId),
      change: {
        actor: { kind: 'user', id: session.userId },
        action: 'session.close',
        target: { kind: 'user', id: session.userId },
      },
    });
  }

  /** Undefined when the account changed meanwhile: it may have another password by now. */
  async #openSession(
    account: UserDocument,
    password: string,
    ip?: string,
  ): Promise<SessionGrant | undefined> {
    const atMs = this.#now();
    const session = await draftSession(this.#control, { userId: account.id, ip, nowMs: atMs });
    const renewed = await this.#renewHash(account, password, atMs);
    const actor: Actor = { kind: 'user', id: account.id, ...(ip === undefined ? {} : { ip }) };
    const outcome = await this.#control.transact({
      atMs,
      checks: [{ op: 'version', key: documentKey('user', account.id), version: account.version }],
      writes: [...renewed, ...session.writes],
      change: { actor, action: 'session.open', target: { kind: 'user', id: account.id } },
    });
    if (!outcome.committed) return undefined;
    return { token: session.token, expiresAt: session.expiresAt, user: viewUser(account) };
  }

  async #openSetup(setupToken: string | undefined): Promise<Gate> {
    if (setupToken === undefined) {
      throw new ApiError('SETUP_REQUIRED', {
        public:
          'there is no account yet; register the first one with the setup token that the API printed at its start',
      });
    }
    const issued = await this.#control.read<SetupTokenDocument>('setup-token', 'current');
    const offered = Buffer.from(hash('sha256', setupToken, 'hex'));
    const isRight = issued !== undefined && timingSafeEqual(Buffer.from(issued.tokenHash), offered);
    if (!isRight || Date.parse(issued.expiresAt) <= this.#now()) throw setupTokenRefused();
    return {
      isFirst: true,
      checks: [{ op: 'absent', key: ALL_USERS }, isUnchanged(issued)],
      writes: [{ op: 'delete', key: SETUP_TOKEN }],
    };
  }

  async #draftUser({ email, password, name, isAdmin }: NewUser): Promise<UserDraft> {
    checkNewPassword(password);
    const folded = indexKey('user', 'email', foldEmail(email));
    const isFree: Check = { op: 'absent', key: folded };
    // Asked first so that a taken address costs no hash; the transaction asks again.
    if (await this.#control.has(folded)) throw emailTaken();
    const passwordHash = await this.#hasher.hash(password);
    const createdAt = new Date(this.#now()).toISOString();
    const id = createUuidV7(this.#now());
    const user: User = { id, email: email.normalize('NFC'), name, isAdmin, createdAt };
    const document: UserDocument = { version: 1, ...user, updatedAt: createdAt, passwordHash };
    const writes: Write[] = [
      { op: 'put', key: documentKey('user', id), document },
      { op: 'point', key: folded, value: id },
      { op: 'add', key: ALL_USERS, member: id },
    ];
    return { user, isFree, writes };
  }

  /** The write that brings a hash up to today's parameters, if it needs one. */
  async #renewHash(account: UserDocument, password: string, atMs: number): Promise<Write[]> {
    if (!this.#hasher.isOutdated(account.passwordHash)) return [];
    const passwordHash = await this.#hasher.hash(password);
    const updatedAt = new Date(atMs).toISOString();
    const document: UserDocument = { ...account, version: account.version + 1, passwordHash, updatedAt };
    return [{ op: 'put', key: documentKey('user', account.id), document }];
  }
}

/** What lets a registration through, to be held in the same step that creates the user. */
type Gate = { isFirst: boolean; checks: Check[]; writes: Write[] };

function openSignup(signup: 'open' | 'closed'): Gate {
  if (signup === 'open') return { isFirst: false, checks: [], writes: [] };
  throw new ApiError('FORBIDDEN', { public: 'sign-up is closed here; ask an administrator for an account' });
}

function isUnchanged(former: SetupTokenDocument | undefined): Check {
  if (former === undefined) return { op: 'absent', key: SETUP_TOKEN };
  return { op: 'version', key: SETUP_TOKEN, version: former.version };
}

/** E-mail addresses are compared in NFC and lower case. */
function foldEmail(email: string): string {
  return email.normalize('NFC').toLowerCase();
}

function viewUser({ id, email, name, isAdmin, createdAt }: UserDocument): User {
  return { id, email, name, isAdmin, createdAt };
}

function describeUser(actor: Actor, action: string, after: User): Change {
  return { actor, action, target: { kind: 'user', id: after.id }, after };
}

function emailTaken(): ApiError {
  return new ApiError('CONFLICT', { public: 'an account with this e-mail address exists already' });
}

function setupTokenRefused(): ApiError {
  return new ApiError('FORBIDDEN', { public: 'the setup token is wrong, used or older than an hour' });
}
