import type { Scope } from '@logpond/schema/account';
import { ConfirmedCache } from './confirmed-cache.ts';
import { StoreError } from './store-error.ts';

/** What an API key stands for. `retentionDays` is its project's. */
export type ResolvedKey = {
  keyId: string;
  projectId: string;
  scopes: Scope[];
  expiresAt: string | null;
  retentionDays: number;
};

const ENTRIES_MAX = 10_000;
const HIT_KEPT_MS = 5_000;
const MISS_KEPT_MS = 1_000;
/** From this age on a use asks again in the background, so that a busy key never waits. */
const REFRESH_AFTER_MS = 2_500;
/** How long a key goes on working while Redis is out of reach. */
const STALE_KEPT_MS = 15 * 60_000;
/** After a failed question the next one waits this long. */
const ASK_AGAIN_AFTER_MS = 1_000;
const QUESTIONS_AT_ONCE_MAX = 1_000;

/**
 * What the store said of API keys, by the hash of their secret.
 *
 * A key is believed for 5 s, its absence for 1 s, and a key that the store confirmed in the last 15 min also while
 * the store is out of reach. `load` asks the store; `onGone` hears of keys that were good and no longer are.
 */
export class ApiKeyCache {
  readonly #good = new ConfirmedCache<ResolvedKey>(ENTRIES_MAX);
  readonly #bad = new ConfirmedCache<null>(ENTRIES_MAX);
  readonly #questions = new Map<string, Promise<ResolvedKey | undefined>>();
  readonly #load: (hash: string) => Promise<ResolvedKey | undefined>;
  readonly #onGone: (keyId: string) => void;
  readonly #now: () => number;
  #unreachableUntilMs = 0;
  /** Counts what was forgotten on command, so that an answer under way meanwhile is not kept. */
  #forgotten = 0;

  constructor(options: {
    load: (hash: string) => Promise<ResolvedKey | undefined>;
    onGone: (keyId: string) => void;
    now: () => number;
  }) {
    this.#load = options.load;
    this.#onGone = options.onGone;
    this.#now = options.now;
  }

  /** The key; null: known to be none; undefined: not known, `ask`. */
  get(hash: string): ResolvedKey | null | undefined {
    const nowMs = this.#now();
    const good = this.#good.getFresh(hash, nowMs, STALE_KEPT_MS);
    if (good !== undefined) {
      const ageMs = nowMs - good.atMs;
      const isUnreachable = nowMs < this.#unreachableUntilMs;
      if (ageMs > REFRESH_AFTER_MS && !isUnreachable) this.#refresh(hash);
      if (ageMs > HIT_KEPT_MS && !isUnreachable) return undefined;
      return isExpired(good.value, nowMs) ? null : good.value;
    }
    return this.#bad.getFresh(hash, nowMs, MISS_KEPT_MS) === undefined ? undefined : null;
  }

  /**
   * Asks the store, once for all who ask at the same time.
   *
   * @throws {StoreError} `unavailable` when it is out of reach and the key was not confirmed in the last 15 min.
   */
  async ask(hash: string): Promise<ResolvedKey | undefined> {
    try {
      return await this.#question(hash);
    } catch (error) {
      const nowMs = this.#now();
      const stale = this.#good.getFresh(hash, nowMs, STALE_KEPT_MS)?.value;
      if (stale === undefined || !isUnavailable(error)) throw error;
      return isExpired(stale, nowMs) ? undefined : stale;
    }
  }

  /** Forgets what the predicate picks, and everything that is being asked for or known to be missing. */
  forget(isPicked: (key: ResolvedKey) => boolean): void {
    this.#forgotten += 1;
    this.#good.deleteWhere(isPicked);
    this.#bad.deleteWhere(() => true);
  }

  /** Resolves when no question is under way. */
  async settle(): Promise<void> {
    await Promise.allSettled(this.#questions.values());
  }

  #refresh(hash: string): void {
    // A failure is seen by whoever asks next.
    if (!this.#questions.has(hash)) this.#question(hash).catch(() => undefined);
  }

  #question(hash: string): Promise<ResolvedKey | undefined> {
    const running = this.#questions.get(hash);
    if (running !== undefined) return running;
    if (this.#questions.size >= QUESTIONS_AT_ONCE_MAX) {
      return Promise.reject(new StoreError('redis', 'unavailable', 'too many API keys are being looked up'));
    }
    const question = this.#answer(hash).finally(() => this.#questions.delete(hash));
    this.#questions.set(hash, question);
    return question;
  }

  async #answer(hash: string): Promise<ResolvedKey | undefined> {
    const askedAtMs = this.#now();
    const forgotten = this.#forgotten;
    let key: ResolvedKey | undefined;
    try {
      key = await this.#load(hash);
    } catch (error) {
      if (isUnavailable(error)) this.#unreachableUntilMs = this.#now() + ASK_AGAIN_AFTER_MS;
      throw error;
    }
    this.#unreachableUntilMs = 0;
    if (forgotten === this.#forgotten) this.#keep(hash, key, askedAtMs);
    return key !== undefined && isExpired(key, this.#now()) ? undefined : key;
  }

  #keep(hash: string, key: ResolvedKey | undefined, askedAtMs: number): void {
    if (key !== undefined) {
      this.#bad.delete(hash);
      this.#good.set(hash, key, askedAtMs);
      return;
    }
    const former = this.#good.get(hash);
    this.#good.delete(hash);
    this.#bad.set(hash, null, askedAtMs);
    if (former !== undefined) this.#onGone(former.value.keyId);
  }
}

function isExpired(key: ResolvedKey, nowMs: number): boolean {
  return key.expiresAt !== null && Date.parse(key.expiresAt) <= nowMs;
}

function isUnavailable(error: unknown): boolean {
  return error instanceof StoreError && error.kind === 'unavailable';
}
