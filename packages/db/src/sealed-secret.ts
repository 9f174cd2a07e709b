import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { z } from 'zod';

/** What a server needs to keep secrets of webhooks; named in the refusal where it is missing. */
export const SECRET_KEYS_SETTING = 'SECRET_KEYS';

/** Layout of a sealed text: `v1.<key id>.<base64url of nonce, ciphertext and tag>`. */
const FORMAT = 'v1';
const ALGORITHM = 'aes-256-gcm';
const KEY_BYTES = 32;
/** NIST SP 800-38D §8.2.2: random nonces of 96 bits, good for 2^32 texts under one key. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_ID = /^[A-Za-z0-9_-]{1,16}$/;
/** One that seals, and those that still open what was sealed before. */
const KEYS_MAX = 4;

/** A sealed text that cannot be opened: another key, another place, or damaged. Never holds the text. */
export class SealError extends Error {
  override readonly name = 'SealError';
}

/** Seals secrets that are kept at rest with AES-256-GCM, and opens them again (security.md S56). */
export class SecretSealer {
  readonly #keys: ReadonlyMap<string, Buffer>;
  readonly #firstId: string;

  private constructor(keys: ReadonlyMap<string, Buffer>, firstId: string) {
    this.#keys = keys;
    this.#firstId = firstId;
  }

  /**
   * Reads SECRET_KEYS: `<id>:<base64 of 32 bytes>`, up to 4 of them with commas between. The first seals, all open.
   * Undefined for an empty text.
   *
   * @throws {Error} saying what was expected; no part of a key is in it.
   */
  static parse(keys: string): SecretSealer | undefined {
    if (keys.trim() === '') return undefined;
    const parts = keys.split(',').map((part) => part.trim());
    if (parts.length > KEYS_MAX) throw new Error(`expected at most ${KEYS_MAX} keys, got ${parts.length}`);
    const parsed = parts.map(parseKey);
    const byId = new Map(parsed);
    if (byId.size < parsed.length) throw new Error('expected each key to have an id of its own');
    return new SecretSealer(byId, parsed[0]?.[0] ?? '');
  }

  /** Seals under the first key. It can be opened again with the same context only. */
  seal(text: string, context: string): string {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, this.#keyOf(this.#firstId), nonce, { authTagLength: TAG_BYTES });
    cipher.setAAD(associate(context));
    const sealed = Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]);
    return `${FORMAT}.${this.#firstId}.${sealed.toString('base64url')}`;
  }

  /** The text that was sealed for this context. @throws {SealError} */
  open(sealed: string, context: string): string {
    const { keyId, bytes } = split(sealed);
    const nonce = bytes.subarray(0, NONCE_BYTES);
    const decipher = createDecipheriv(ALGORITHM, this.#keyOf(keyId), nonce, { authTagLength: TAG_BYTES });
    decipher.setAAD(associate(context));
    decipher.setAuthTag(bytes.subarray(bytes.length - TAG_BYTES));
    try {
      const ciphertext = bytes.subarray(NONCE_BYTES, bytes.length - TAG_BYTES);
      return Buffer.concat([decipher.update(ciphertext), decipher.final()]).toString('utf8');
    } catch (error) {
      throw new SealError(`the key "${keyId}" does not open this secret here: it was sealed elsewhere`, {
        cause: error,
      });
    }
  }

  /** Whether it is sealed under the first key. */
  isCurrent(sealed: string): boolean {
    return split(sealed).keyId === this.#firstId;
  }

  #keyOf(id: string): Buffer {
    const key = this.#keys.get(id);
    if (key !== undefined) return key;
    throw new SealError(
      `expected a secret sealed under one of ${[...this.#keys.keys()].join(', ')}, got one of "${id}"`,
    );
  }
}

/** SECRET_KEYS as a setting; every app that needs it spreads this shape into its own schema. */
export const secretKeysShape = {
  /** Seals secrets of webhooks. Empty: rules with such secrets are refused. */
  SECRET_KEYS: z
    .string()
    .default('')
    .superRefine((keys, context) => {
      try {
        SecretSealer.parse(keys);
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        context.addIssue({ code: 'custom', message });
      }
    }),
};

/** Where a webhook's secret stands: sealed for here, it opens nowhere else, not even for another URL of the same rule. */
export function webhookContext(ruleId: string, url: string, field: 'secret' | { header: string }): string {
  const name = typeof field === 'string' ? field : `header ${field.header.toLowerCase()}`;
  return JSON.stringify([ruleId, url, name]);
}

type WebhookSecrets = {
  url: string;
  headers?: Record<string, string> | undefined;
  secret?: string | undefined;
};

/** The secret and the headers of a webhook of a stored rule, opened. @throws {SealError} */
export function openWebhookSecrets(
  sealer: SecretSealer,
  ruleId: string,
  { url, headers, secret }: WebhookSecrets,
): { headers: Record<string, string>; secret: string | undefined } {
  const opened = Object.entries(headers ?? {}).map(([name, sealed]): [string, string] => [
    name,
    sealer.open(sealed, webhookContext(ruleId, url, { header: name })),
  ]);
  return {
    headers: Object.fromEntries(opened),
    secret: secret === undefined ? undefined : sealer.open(secret, webhookContext(ruleId, url, 'secret')),
  };
}

function parseKey(part: string, index: number): [string, Buffer] {
  const place = `key ${index + 1}`;
  const colon = part.indexOf(':');
  const id = part.slice(0, Math.max(colon, 0));
  if (!KEY_ID.test(id)) {
    throw new Error(`${place}: expected <id>:<base64>, the id of 1 to 16 letters, digits, - and _`);
  }
  const text = part.slice(colon + 1);
  const key = Buffer.from(text, 'base64');
  const isBase64 = /^[A-Za-z0-9+/_-]+={0,2}$/.test(text);
  if (!isBase64 || key.length !== KEY_BYTES) {
    const got = isBase64 ? `${key.length} bytes` : 'something else';
    throw new Error(
      `${place} ("${id}"): expected ${KEY_BYTES} bytes in base64 (openssl rand -base64 32), got ${got}`,
    );
  }
  if (new Set(key).size < KEY_BYTES / 4) {
    throw new Error(`${place} ("${id}"): expected ${KEY_BYTES} random bytes, got ones that repeat`);
  }
  return [id, key];
}

function associate(context: string): Buffer {
  return Buffer.from(`${FORMAT} ${context}`, 'utf8');
}

function split(sealed: string): { keyId: string; bytes: Buffer } {
  const [format, keyId, text, ...rest] = sealed.split('.');
  const bytes = Buffer.from(text ?? '', 'base64url');
  const isWhole = format === FORMAT && keyId !== undefined && rest.length === 0;
  if (isWhole && bytes.length >= NONCE_BYTES + TAG_BYTES) return { keyId, bytes };
  throw new SealError('expected a sealed secret, got another text');
}
