import { SCOPES } from '@logpond/schema/account';
import type { Scope } from '@logpond/schema/account';
import { ApiError } from '@logpond/schema/api-error';
import { parseTimestampNs } from '@logpond/schema/timestamp';
import { ApiKeyCache } from './api-key-cache.ts';
import type { ResolvedKey } from './api-key-cache.ts';
import { createApiKeySecret, hashApiKeySecret, isApiKeySecret } from './api-key-secret.ts';
import { childrenKey, documentKey, indexKey } from './control-store.ts';
import type { Actor, ChangedDocument, Check, ControlStore, Versioned } from './control-store.ts';
import type { ProjectDocument } from './projects.ts';
import { createUuidV7 } from './uuid-v7.ts';

/** An API key as anyone may see it; `prefix` is the first six characters of the secret. */
type ApiKeyView = {
  id: string;
  name: string;
  prefix: string;
  scopes: Scope[];
  expiresAt: string | null;
  lastUsedAt: string | null;
  createdAt: string;
};

/** An API key as it is kept; `hash` is the secret's SHA-256. When it was last used is kept beside it. */
type ApiKeyDocument = Versioned &
  Omit<ApiKeyView, 'lastUsedAt'> & {
    projectId: string;
    hash: string;
    lastFour: string;
    createdBy: string | null;
  };

const KEYS_PER_PROJECT_MAX = 50;
const LAST_USED_EVERY_MS = 60_000;
/** Keys whose last use is being remembered, to be written at most once a minute. */
const LAST_USED_MAX = 10_000;

/** API keys of projects. One instance a process: it listens to changes as long as the store lives. */
export class ApiKeys implements AsyncDisposable {
  readonly #control: ControlStore;
  readonly #now: () => number;
  readonly #cache: ApiKeyCache;
  readonly #revokedListeners = new Set<(keyId: string) => void>();
  /** When the last use of a key was written, ms since epoch; the one written longest ago is first. */
  readonly #lastUsedAtMs = new Map<string, number>();
  readonly #background = new Set<Promise<void>>();

  constructor(control: ControlStore, options: { now?: () => number } = {}) {
    this.#control = control;
    this.#now = options.now ?? Date.now;
    this.#cache = new ApiKeyCache({
      load: async (hash) => this.#load(hash),
      onGone: (keyId) => this.#tellRevoked(keyId),
      now: this.#now,
    });
    control.onChanged((changed) => this.#follow(changed));
  }

  /**
   * Creates a key; its secret is in the answer and nowhere else. All three scopes by default.
   *
   * @throws {ApiError} `NOT_FOUND` when there is no such project; `CONFLICT` when it has 50 keys;
   * `VALIDATION_ERROR` when it would be expired already.
   */
  async create(
    actor: Actor,
    projectId: string,
    input: { name: string; scopes?: readonly Scope[] | undefined; expiresAt?: string | null | undefined },
  ): Promise<{ apiKey: string } & ApiKeyView> {
    const atMs = this.#now();
    const apiKey = createApiKeySecret();
    const document: ApiKeyDocument = {
      version: 1,
      id: createUuidV7(atMs),
      projectId,
      name: input.name,
      scopes: SCOPES.filter((scope) => (input.scopes ?? SCOPES).includes(scope)),
      expiresAt: checkExpiry(input.expiresAt, atMs),
      prefix: apiKey.slice(0, 6),
      lastFour: apiKey.slice(-4),
      hash: hashApiKeySecret(apiKey),
      createdBy: actor.id ?? null,
      createdAt: new Date(atMs).toISOString(),
    };
    const { id } = document;
    const projectExists: Check = { op: 'exists', key: documentKey('project', projectId) };
    const ofProject = ofProjectKey(projectId);
    const outcome = await this.#control.transact({
      atMs,
      checks: [projectExists, { op: 'below', key: ofProject, limit: KEYS_PER_PROJECT_MAX }],
      writes: [
        { op: 'put', key: documentKey('api-key', id), document },
        { op: 'point', key: indexKey('api-key', 'hash', document.hash), value: id },
        { op: 'point', key: lastUsedKey(id), value: '' },
        { op: 'add', key: ofProject, member: id },
      ],
      change: { actor, action: 'api-key.create', target: { kind: 'api-key', id }, after: document },
    });
    if (outcome.committed) return { apiKey, ...viewApiKey(document, '') };
    if (outcome.failed === projectExists)
      throw new ApiError('NOT_FOUND', { public: 'there is no such project' });
    throw new ApiError('CONFLICT', {
      public: `expected at most ${KEYS_PER_PROJECT_MAX} API keys in a project, got one more; revoke one first`,
    });
  }

  /** The project's keys, oldest first. */
  async list(projectId: string): Promise<ApiKeyView[]> {
    const ids = await this.#control.listChildren(ofProjectKey(projectId));
    const [documents, lastUses] = await Promise.all([
      this.#control.readMany<ApiKeyDocument>('api-key', ids),
      this.#control.readValues(ids.map(lastUsedKey)),
    ]);
    return documents.flatMap((document, place) =>
      document === undefined ? [] : [viewApiKey(document, lastUses[place])],
    );
  }

  /** Revokes a key, everywhere within 5 s; false when the project has no such key. */
  async revoke(actor: Actor, projectId: string, keyId: string): Promise<boolean> {
    const document = await this.#control.read<ApiKeyDocument>('api-key', keyId);
    if (document === undefined || document.projectId !== projectId) return false;
    const key = documentKey('api-key', keyId);
    const outcome = await this.#control.transact({
      atMs: this.#now(),
      checks: [{ op: 'exists', key }],
      writes: [
        { op: 'delete', key },
        { op: 'unpoint', key: indexKey('api-key', 'hash', document.hash) },
        { op: 'unpoint', key: lastUsedKey(keyId) },
        { op: 'remove', key: ofProjectKey(projectId), member: keyId },
      ],
      change: { actor, action: 'api-key.revoke', target: { kind: 'api-key', id: keyId }, before: document },
    });
    return outcome.committed;
  }

  /**
   * What a secret stands for; undefined when it is malformed, unknown, revoked or expired.
   *
   * @throws {StoreError} `unavailable` when Redis is out of reach and the key was not seen in the last 15 min.
   */
  async resolve(secret: string): Promise<ResolvedKey | undefined> {
    const cached = this.resolveCached(secret);
    if (cached !== undefined) return cached ?? undefined;
    const key = await this.#cache.ask(hashApiKeySecret(secret));
    if (key !== undefined) this.#noteUse(key.keyId);
    return key;
  }

  /** The same without waiting: null when the secret is known to be no good, undefined when `resolve` must ask. */
  resolveCached(secret: string): ResolvedKey | null | undefined {
    if (!isApiKeySecret(secret)) return null;
    const key = this.#cache.get(hashApiKeySecret(secret));
    if (key !== undefined && key !== null) this.#noteUse(key.keyId);
    return key;
  }

  /**
   * Calls the listener when a key that this process knew is revoked, perhaps more than once. Expiry and a message
   * that was lost are noticed by resolving again.
   *
   * @returns a function that ends it.
   */
  onRevoked(listener: (keyId: string) => void): () => void {
    this.#revokedListeners.add(listener);
    return () => this.#revokedListeners.delete(listener);
  }

  /** Waits for what goes on in the background. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#cache.settle();
    await Promise.allSettled(this.#background);
  }

  async #load(hash: string): Promise<ResolvedKey | undefined> {
    const document = await this.#control.readByIndex<ApiKeyDocument>('api-key', 'hash', hash);
    const project = document && (await this.#control.read<ProjectDocument>('project', document.projectId));
    if (document === undefined || project === undefined) return undefined;
    const { id, projectId, scopes, expiresAt } = document;
    return { keyId: id, projectId, scopes, expiresAt, retentionDays: project.retentionDays };
  }

  #follow(changed: readonly ChangedDocument[]): void {
    for (const { key, deleted } of changed) {
      if (key.startsWith('api-key:')) {
        const keyId = key.slice('api-key:'.length);
        this.#cache.forget((known) => known.keyId === keyId);
        if (deleted) this.#tellRevoked(keyId);
      } else if (key.startsWith('project:')) {
        const projectId = key.slice('project:'.length);
        this.#cache.forget((known) => known.projectId === projectId);
      }
    }
  }

  #tellRevoked(keyId: string): void {
    this.#lastUsedAtMs.delete(keyId);
    for (const listener of this.#revokedListeners) listener(keyId);
  }

  #noteUse(keyId: string): void {
    const nowMs = this.#now();
    if (nowMs - (this.#lastUsedAtMs.get(keyId) ?? 0) < LAST_USED_EVERY_MS) return;
    this.#lastUsedAtMs.delete(keyId);
    this.#lastUsedAtMs.set(keyId, nowMs);
    if (this.#lastUsedAtMs.size > LAST_USED_MAX) {
      const oldest = this.#lastUsedAtMs.keys().next();
      if (oldest.done !== true) this.#lastUsedAtMs.delete(oldest.value);
    }
    // Only when the key is still there, so a use that comes late leaves nothing behind. Losing one is harmless.
    const written = this.#control
      .replaceValue(lastUsedKey(keyId), new Date(nowMs).toISOString())
      .catch(() => undefined)
      .finally(() => this.#background.delete(written));
    this.#background.add(written);
  }
}

function checkExpiry(expiresAt: string | null | undefined, nowMs: number): string | null {
  if (expiresAt === undefined || expiresAt === null) return null;
  const atNs = parseTimestampNs(expiresAt);
  const atMs = atNs === undefined ? 0 : Number(atNs / 1_000_000n);
  if (atMs > nowMs) return new Date(atMs).toISOString();
  const message = `expected a time in the future, got "${expiresAt.slice(0, 80)}"`;
  throw new ApiError('VALIDATION_ERROR', {
    public: `expiresAt: ${message}`,
    details: [{ path: 'expiresAt', message }],
  });
}

function ofProjectKey(projectId: string): string {
  return childrenKey('api-keys', 'project', projectId);
}

function lastUsedKey(keyId: string): string {
  return `api-key-used:${keyId}`;
}

function viewApiKey(document: ApiKeyDocument, lastUsedAt: string | undefined): ApiKeyView {
  const { id, name, prefix, scopes, expiresAt, createdAt } = document;
  return {
    id,
    name,
    prefix,
    scopes,
    expiresAt,
    lastUsedAt: lastUsedAt === '' ? null : (lastUsedAt ?? null),
    createdAt,
  };
}
