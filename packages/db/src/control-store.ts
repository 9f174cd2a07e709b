import { randomBytes } from 'node:crypto';
import { askRedis } from './connect.ts';
import type { RedisClient, RedisStore } from './connect.ts';
import { RedisScript } from './redis-script.ts';

/** What the control plane keeps as documents. */
type DocumentKind =
  | 'user'
  | 'session'
  | 'setup-token'
  | 'organization'
  | 'member'
  | 'project'
  | 'api-key'
  | 'alert-rule';

/** A JSON document; the version counts its writes from 1, and checks compare it. */
export type Versioned = { version: number };

/** Who changes something. `id` is a user's or an API key's. */
export type Actor = {
  kind: 'user' | 'apiKey' | 'operator' | 'system';
  id?: string;
  ip?: string;
  requestId?: string;
};

/** What must hold for a transaction; `below` bounds the number of members of a children set. */
export type Check =
  | { op: 'absent' | 'exists'; key: string }
  | { op: 'version'; key: string; version: number }
  | { op: 'below'; key: string; limit: number };

/**
 * What a transaction writes. With `ttlMs` a document is gone by itself after that time and is kept out of the
 * backup (sessions). `point` writes an index entry or a bare value, `unpoint` deletes one. Members are ordered by
 * score, then by text.
 */
export type Write =
  | { op: 'put'; key: string; document: Versioned; ttlMs?: number }
  | { op: 'point'; key: string; value: string }
  | { op: 'delete' | 'unpoint'; key: string }
  | { op: 'add'; key: string; member: string; score?: number }
  | { op: 'remove'; key: string; member: string };

/** What the change log says of a transaction; `before` and `after` hold no secrets, at most their hashes. */
export type Change = {
  actor: Actor;
  action: string;
  target: { kind: DocumentKind; id: string };
  before?: unknown;
  after?: unknown;
};

type Transaction = {
  atMs: number;
  checks: readonly Check[];
  writes: readonly Write[];
  change: Change;
};

/** `failed` is the very check of the transaction that did not hold; then nothing was written. */
type TransactionOutcome = { committed: true } | { committed: false; failed: Check };

/** A document that was written or deleted, by its key (`documentKey`). */
export type ChangedDocument = { key: string; deleted: boolean };

type ChangeMessage = { origin: string; changed: readonly ChangedDocument[] };

/** Key of a document, without the installation's prefix, as all keys here. */
export function documentKey(kind: DocumentKind, id: string): string {
  return `${kind}:${id}`;
}

/** Key of the entry of a unique index; it holds the document's id. */
export function indexKey(kind: DocumentKind, field: string, value: string): string {
  return `${kind}-by-${field}:${value}`;
}

/** Key of the set of the ids of all children of one parent; in order of creation, as the ids are UUIDs v7. */
export function childrenKey(children: string, parent: string, parentId: string): string {
  return `${children}-of-${parent}:${parentId}`;
}

const CHANGES_KEPT_MS = 7 * 86_400_000;
/** More children of one parent than this are not listed; every children set has a lower cap of its own. */
const CHILDREN_MAX = 10_000;
const READ_CHUNK = 500;

const transactScript = new RedisScript('control-store.lua/transact.lua');

/**
 * The control plane: small documents with unique indexes and children sets in Redis, under one hash tag.
 *
 * Every change is one Lua call that checks, writes, appends to the change log (audit, backup) and publishes what
 * to forget. Business rules belong to the resource files. All failures of Redis are StoreErrors.
 */
export class ControlStore {
  readonly #redis: RedisStore;
  readonly #root: string;
  readonly #listeners = new Set<(changed: readonly ChangedDocument[]) => void>();
  /** Tells this one's own messages, which are of no use to it, from those of others. */
  readonly #origin = randomBytes(9).toString('base64url');
  #isSubscribed = false;

  constructor(redis: RedisStore) {
    this.#redis = redis;
    this.#root = `${redis.prefix}:{cp}:`;
  }

  /** The document with this id, or undefined. */
  async read<T extends Versioned>(kind: DocumentKind, id: string): Promise<T | undefined> {
    const [document] = await this.readMany<T>(kind, [id]);
    return document;
  }

  /** The documents with these ids, in their order; undefined for a missing one. */
  async readMany<T extends Versioned>(
    kind: DocumentKind,
    ids: readonly string[],
  ): Promise<(T | undefined)[]> {
    const texts = await this.readValues(ids.map((id) => documentKey(kind, id)));
    return texts.map((text) => (text === undefined ? undefined : (JSON.parse(text) as T)));
  }

  /** Bare values (index entries and the like) by key, in their order. */
  async readValues(keys: readonly string[]): Promise<(string | undefined)[]> {
    const values: (string | undefined)[] = [];
    for (let from = 0; from < keys.length; from += READ_CHUNK) {
      const chunk = keys.slice(from, from + READ_CHUNK).map((key) => this.#root + key);
      const answers = await this.#ask((client) => client.mget(...chunk));
      values.push(...answers.map((answer) => answer ?? undefined));
    }
    return values;
  }

  /** The document that a unique index names, or undefined. */
  async readByIndex<T extends Versioned>(
    kind: DocumentKind,
    field: string,
    value: string,
  ): Promise<T | undefined> {
    const [id] = await this.readValues([indexKey(kind, field, value)]);
    if (id === undefined) return undefined;
    return this.read<T>(kind, id);
  }

  /** The members of a children set in order; the first 10,000. */
  async listChildren(key: string): Promise<string[]> {
    return this.#ask((client) => client.zrange(this.#root + key, 0, String(CHILDREN_MAX - 1)));
  }

  async has(key: string): Promise<boolean> {
    return (await this.#ask((client) => client.exists(this.#root + key))) === 1;
  }

  /** Replaces a bare value if there is one; not logged and not published. */
  async replaceValue(key: string, value: string): Promise<void> {
    await this.#ask((client) => client.set(this.#root + key, value, 'XX'));
  }

  /** Sets a bare value if there is none; returns the one that is there afterwards. Not logged. */
  async settleValue(key: string, value: string): Promise<string> {
    const settled = await this.#ask((client) => client.get(this.#root + key));
    // A server at its memory limit refuses writes, and a process must be able to start there.
    if (settled !== null) return settled;
    await this.#ask((client) => client.set(this.#root + key, value, 'NX'));
    return (await this.#ask((client) => client.get(this.#root + key))) ?? value;
  }

  /**
   * Checks and writes in one step, all or nothing.
   *
   * @throws {StoreError} `unavailable`: whether it happened is unknown.
   */
  async transact(transaction: Transaction): Promise<TransactionOutcome> {
    const changed = listChangedDocuments(transaction.writes);
    const message: ChangeMessage = { origin: this.#origin, changed };
    const call = encodeTransaction(transaction, message, this.#root);
    const answer = await transactScript.run(this.#redis.client, call.keys, call.args);
    if (answer === 0) {
      this.#tell(changed);
      return { committed: true };
    }
    const failed = transaction.checks[Number(answer) - 1];
    if (failed === undefined)
      throw new Error(`expected the number of a check from transact, got ${String(answer)}`);
    return { committed: false, failed };
  }

  /**
   * Calls the listener with what any process changed: at once for this one's own changes, else when the message
   * arrives. A message can be lost, so a cache needs a time limit besides.
   *
   * @returns a function that ends it.
   */
  onChanged(listener: (changed: readonly ChangedDocument[]) => void): () => void {
    this.#listeners.add(listener);
    if (!this.#isSubscribed) this.#subscribe();
    return () => this.#listeners.delete(listener);
  }

  #subscribe(): void {
    this.#isSubscribed = true;
    const subscription = this.#redis.subscriber();
    subscription.on('message', (_channel, text) => {
      const { origin, changed } = JSON.parse(text) as ChangeMessage;
      if (origin !== this.#origin) this.#tell(changed);
    });
    // On every connection anew. Until it succeeds, the time limits of the caches serve.
    subscription.on('ready', () => {
      subscription.subscribe(`${this.#root}changed`).catch(() => undefined);
    });
  }

  #tell(changed: readonly ChangedDocument[]): void {
    for (const listener of this.#listeners) listener(changed);
  }

  async #ask<T>(command: (client: RedisClient) => Promise<T>): Promise<T> {
    return askRedis(command(this.#redis.client));
  }
}

/** The secret that signs cursors: 256 bits, base64url; made on first use, the same for all processes. */
export async function installationSecret(control: ControlStore): Promise<string> {
  return control.settleValue('installation-secret', randomBytes(32).toString('base64url'));
}

function listChangedDocuments(writes: readonly Write[]): ChangedDocument[] {
  const changed: ChangedDocument[] = [];
  for (const write of writes) {
    if (write.op === 'put' || write.op === 'delete') {
      changed.push({ key: write.key, deleted: write.op === 'delete' });
    }
  }
  return changed;
}

/** The version goes first, where the script looks for it. */
function stringifyDocument(document: Versioned): string {
  const { version, ...rest } = document;
  return JSON.stringify({ version, ...rest });
}

function encodeTransaction(
  { atMs, checks, writes, change }: Transaction,
  message: ChangeMessage,
  root: string,
): { keys: string[]; args: string[] } {
  const keys = [`${root}changes`];
  const operations: string[] = [];
  for (const check of checks) {
    const argument = check.op === 'version' ? check.version : check.op === 'below' ? check.limit : '';
    operations.push(check.op, String(keys.push(root + check.key)), String(argument));
  }
  for (const write of writes) {
    const [operation, first, second] = encodeWrite(write);
    operations.push(operation, String(keys.push(root + write.key)), first, second);
  }
  const kept = writes.filter((write) => write.op !== 'put' || write.ttlMs === undefined);
  const logged = { time: new Date(atMs).toISOString(), ...change };
  const head = [`${root}changed`, JSON.stringify(message), JSON.stringify(logged), JSON.stringify(kept)];
  const counts = [CHANGES_KEPT_MS, checks.length, writes.length].map(String);
  return { keys, args: [...head, ...counts, ...operations] };
}

/** Operation of the script and its two arguments. */
function encodeWrite(write: Write): [string, string, string] {
  switch (write.op) {
    case 'put': {
      const text = stringifyDocument(write.document);
      return write.ttlMs === undefined ? ['put', text, ''] : ['lend', text, String(write.ttlMs)];
    }
    case 'point':
      return ['put', write.value, ''];
    case 'delete':
    case 'unpoint':
      return ['delete', '', ''];
    case 'add':
      return ['add', write.member, String(write.score ?? 0)];
    case 'remove':
      return ['remove', write.member, ''];
  }
}
