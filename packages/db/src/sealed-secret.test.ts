import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { openWebhookSecrets, SealError, SecretSealer, webhookContext } from './sealed-secret.ts';

const OLD = `old:${randomBytes(32).toString('base64')}`;
const NEW = `new-2:${randomBytes(32).toString('base64url')}`;

function open(keys: string): SecretSealer {
  const sealer = SecretSealer.parse(keys);
  if (sealer === undefined) throw new Error('expected a sealer');
  return sealer;
}

describe('SecretSealer', () => {
  it('opens what it sealed, whatever it is, and never seals the same twice alike', () => {
    const sealer = open(OLD);
    expect(sealer.seal('a long secret', 'here')).not.toContain('secret');
    for (const text of ['', 's', 'Grüße \u{1f600} \0', 'x'.repeat(1_024)]) {
      const sealed = sealer.seal(text, 'here');
      expect(sealer.open(sealed, 'here')).toBe(text);
      expect(sealer.seal(text, 'here')).not.toBe(sealed);
    }
  });

  it('a text opens in its own place only: for no other rule, URL, field or key', () => {
    const sealer = open(OLD);
    const place = webhookContext('rule-1', 'https://a.example/x', { header: 'X-Token' });
    const sealed = sealer.seal('secret', place);
    expect(sealer.open(sealed, webhookContext('rule-1', 'https://a.example/x', { header: 'x-token' }))).toBe(
      'secret',
    );
    const elsewhere = [
      webhookContext('rule-2', 'https://a.example/x', { header: 'X-Token' }),
      webhookContext('rule-1', 'https://b.example/x', { header: 'X-Token' }),
      webhookContext('rule-1', 'https://a.example/x', { header: 'X-Other' }),
      webhookContext('rule-1', 'https://a.example/x', 'secret'),
    ];
    for (const context of elsewhere) expect(() => sealer.open(sealed, context)).toThrow(SealError);
    const sameId = open(`old:${randomBytes(32).toString('base64')}`);
    expect(() => sameId.open(sealed, place)).toThrow(SealError);
    const [, , body] = sealed.split('.');
    expect(() => open(`${NEW},${OLD}`).open(`v1.new-2.${body}`, place)).toThrow(SealError);
  });

  it('a text that was changed anywhere does not open', () => {
    const sealer = open(OLD);
    const sealed = sealer.seal('secret', 'here');
    const bytes = Buffer.from(sealed.split('.')[2] ?? '', 'base64url');
    for (let at = 0; at < bytes.length; at += 1) {
      const damaged = Buffer.from(bytes);
      damaged[at] = (damaged[at] ?? 0) ^ 1;
      expect(() => sealer.open(`v1.old.${damaged.toString('base64url')}`, 'here')).toThrow(SealError);
    }
    for (const text of [
      '',
      'plain',
      'v1.old.',
      'v2.old.AAAA',
      `${sealed}.x`,
      `v1.old.${bytes.subarray(0, 27).toString('base64url')}`,
    ]) {
      expect(() => sealer.open(text, 'here')).toThrow(SealError);
    }
  });

  it('seals under the first key, opens under all, and knows what is not under the first', () => {
    const before = open(OLD).seal('secret', 'here');
    const both = open(`${NEW}, ${OLD}`);
    expect([both.open(before, 'here'), both.isCurrent(before)]).toEqual(['secret', false]);
    const after = both.seal('secret', 'here');
    expect([open(NEW).open(after, 'here'), both.isCurrent(after)]).toEqual(['secret', true]);
    expect(() => open(NEW).open(before, 'here')).toThrow(
      'expected a secret sealed under one of new-2, got one of "old"',
    );
  });

  it('opens the secret and the headers of a webhook', () => {
    const sealer = open(OLD);
    const url = 'https://a.example/x';
    const config = {
      url,
      secret: sealer.seal('s', webhookContext('rule-1', url, 'secret')),
      headers: { 'X-Token': sealer.seal('t', webhookContext('rule-1', url, { header: 'X-Token' })) },
    };
    expect(openWebhookSecrets(sealer, 'rule-1', config)).toEqual({
      secret: 's',
      headers: { 'X-Token': 't' },
    });
    expect(openWebhookSecrets(sealer, 'rule-1', { url })).toEqual({ secret: undefined, headers: {} });
  });

  it.each<[string, RegExp]>([
    ['nonsense', /key 1: expected <id>:<base64>/],
    [`:${OLD.slice(4)}`, /key 1: expected <id>:<base64>/],
    [`${'x'.repeat(17)}:${OLD.slice(4)}`, /the id of 1 to 16/],
    [`a:${randomBytes(16).toString('base64')}`, /key 1 \("a"\): expected 32 bytes in base64 .*got 16 bytes/],
    ['a:not base64!', /expected 32 bytes in base64 .*got something else/],
    [`a:${Buffer.alloc(32).toString('base64')}`, /expected 32 random bytes, got ones that repeat/],
    [`${OLD},${OLD}`, /expected each key to have an id of its own/],
    [`${OLD},`, /key 2: expected/],
    [
      Array.from({ length: 5 }, (_, n) => `k${n}:${OLD.slice(4)}`).join(','),
      /expected at most 4 keys, got 5/,
    ],
  ])('the keys %j are refused without being told', (keys, message) => {
    expect(() => SecretSealer.parse(keys)).toThrow(message);
    const told = (): unknown => SecretSealer.parse(keys);
    expect(told).not.toThrow(OLD.slice(4));
  });

  it('no keys are no sealer', () => {
    expect(SecretSealer.parse('')).toBeUndefined();
  });
});
