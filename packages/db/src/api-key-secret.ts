import { hash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

const PREFIX = 'lp_';
const RANDOM_LENGTH = 40;
const CHECKSUM_LENGTH = 6;
const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const SECRET_SHAPE = /^lp_[0-9A-Za-z]{46}$/;
/** The largest multiple of 62 in a byte: what is above would favour some digits. */
const UNBIASED_MAX = 248;

/**
 * A new API key: `lp_`, 40 random base62 characters (238 bits) and 6 of CRC-32 (IEEE) over all that precedes, as
 * a number in base62, most significant digit first (contract.md §3).
 */
export function createApiKeySecret(): string {
  let body = PREFIX;
  while (body.length < PREFIX.length + RANDOM_LENGTH) {
    for (const byte of randomBytes(RANDOM_LENGTH)) {
      if (byte < UNBIASED_MAX && body.length < PREFIX.length + RANDOM_LENGTH)
        body += DIGITS.charAt(byte % 62);
    }
  }
  return body + checksum(body);
}

/** Whether a text has the shape and the checksum of an API key; says nothing of whether it exists. */
export function isApiKeySecret(text: string): boolean {
  if (!SECRET_SHAPE.test(text)) return false;
  const body = text.slice(0, -CHECKSUM_LENGTH);
  return text.endsWith(checksum(body));
}

/** What is kept of an API key: its SHA-256 in hex. */
export function hashApiKeySecret(secret: string): string {
  return hash('sha256', secret, 'hex');
}

function checksum(body: string): string {
  let rest = crc32(body);
  let digits = '';
  for (let place = 0; place < CHECKSUM_LENGTH; place += 1) {
    digits = DIGITS.charAt(rest % 62) + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}
