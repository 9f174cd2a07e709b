import { describe, expect, it } from 'vitest';
import { createApiKeySecret, hashApiKeySecret, isApiKeySecret } from './api-key-secret.ts';

/** Computed with Python: zlib.crc32 and base62 by hand; the last has a checksum that begins with two zeros. */
const VECTORS = [
  'lp_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcd3BdSdM',
  'lp_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz0ek3n4',
  'lp_a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a10NWknC',
  'lp_000000000000000000000000000000000000004500e5WA',
];

describe('API key secrets', () => {
  it('carry the checksum that another implementation computes', () => {
    for (const secret of VECTORS) expect(isApiKeySecret(secret)).toBe(true);
  });

  it('are lp_ and 46 base62 characters, all different, and pass their own check', () => {
    const secrets = Array.from({ length: 500 }, () => createApiKeySecret());
    expect(new Set(secrets).size).toBe(500);
    for (const secret of secrets) {
      expect(secret).toMatch(/^lp_[0-9A-Za-z]{46}$/);
      expect(isApiKeySecret(secret)).toBe(true);
    }
  });

  it('use every base62 digit about equally often', () => {
    const counts = new Map<string, number>();
    for (let number = 0; number < 1_000; number += 1) {
      for (const digit of createApiKeySecret().slice(3, 43)) counts.set(digit, (counts.get(digit) ?? 0) + 1);
    }
    expect(counts.size).toBe(62);
    // 40,000 draws, 645 expected each, standard deviation 25: seven of them on either side.
    for (const count of counts.values()) expect(Math.abs(count - 645)).toBeLessThan(180);
  });

  it('fail the check with any one character changed', () => {
    const secret = VECTORS[0] ?? '';
    for (let place = 0; place < secret.length; place += 1) {
      const other = secret.charAt(place) === 'x' ? 'y' : 'x';
      expect(isApiKeySecret(secret.slice(0, place) + other + secret.slice(place + 1))).toBe(false);
    }
  });

  it('fail the check with another shape', () => {
    const secret = VECTORS[0] ?? '';
    for (const text of [
      '',
      'lp_',
      secret.slice(0, -1),
      `${secret}0`,
      `${secret}\n`,
      ` ${secret}`,
      secret.toLowerCase(),
    ]) {
      expect(isApiKeySecret(text)).toBe(false);
    }
  });

  it('are kept as SHA-256 in hex', () => {
    expect(hashApiKeySecret('abc')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
  });
});
