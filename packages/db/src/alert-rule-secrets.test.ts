import type { AlertNotification, AlertRuleDraft } from '@logpond/schema/alert-rule';
import { MASKED_SECRET } from '@logpond/schema/alert-rule';
import { describe, expect, it } from 'vitest';
import { maskSecrets, sealSecrets } from './alert-rule-secrets.ts';
import { SecretSealer } from './sealed-secret.ts';

const RULE_ID = '0190a5e0-0000-7000-8000-0000000000aa';
const KEY = Buffer.from(Array.from({ length: 32 }, (_, index) => index)).toString('base64');
const SEALER = SecretSealer.parse(`sixteen-letters-:${KEY}`);

/** The most headers that a rule may have, with values of so many bytes. */
function webhooks(count: number, bytes: number): AlertNotification[] {
  return Array.from({ length: count }, (_, index) => {
    const headers = Array.from({ length: 20 }, (__, at): [string, string] => [`${at}`, 'x'.repeat(bytes)]);
    return {
      type: 'webhook',
      config: { url: `https://h${index}.example.com`, headers: Object.fromEntries(headers) },
    };
  });
}

function seal(notifications: AlertNotification[], stored: AlertNotification[] = []): AlertNotification[] {
  const condition = { field: 'level', operator: 'exists', threshold: 1, timeWindow: '1m' } as const;
  const draft: AlertRuleDraft = { name: 'r', enabled: true, condition, notifications };
  return sealSecrets(SEALER, RULE_ID, draft, stored);
}

const sizeOf = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));

describe('the notifications of a rule as they are kept', () => {
  it('take whatever one request may carry, sealed', () => {
    const largest = webhooks(20, 29);
    expect(sizeOf(largest)).toBeGreaterThan(16_000);
    expect(sizeOf(largest)).toBeLessThanOrEqual(16_384);
    expect(seal(largest)).toHaveLength(20);
  });

  it('do not grow without bound behind masks that say little', () => {
    let stored: AlertNotification[] = [];
    const grow = (): void => {
      const more = webhooks(20, 300).slice(stored.length, stored.length + 1);
      const sent = [...maskSecrets(stored), ...more];
      expect(JSON.stringify(sent)).toContain(stored.length > 0 ? MASKED_SECRET : 'x');
      stored = seal(sent, stored);
    };
    expect(() => {
      while (stored.length < 20) grow();
    }).toThrow(/expected at most 49152 bytes of JSON with the secrets sealed, got 5\d{4}/);
    expect(sizeOf(stored)).toBeLessThanOrEqual(49_152);
  });
});
