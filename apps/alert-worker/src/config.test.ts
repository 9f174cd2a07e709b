import { readConfig } from '@logpond/runtime/env';
import { describe, expect, it } from 'vitest';
import { configSchema } from './config.ts';
import { readMailFrom } from './mail-sender.ts';

describe('the settings of notifications', () => {
  it('have defaults that send nothing anywhere', () => {
    expect(readConfig(configSchema, {})).toMatchObject({
      SMTP_URL: '',
      MAIL_OUTBOX_DIR: '',
      PUBLIC_URL: 'http://127.0.0.1:8080',
      WEBHOOK_ALLOW_HTTP: false,
      WEBHOOK_ALLOWED_NETWORKS: '',
      SECRET_KEYS: '',
    });
  });

  it.each([
    [{ SMTP_URL: 'https://mail.example.com' }, 'SMTP_URL: expected a URL such as smtp://'],
    [{ SMTP_URL: 'smtp://mail.example.com' }, 'MAIL_FROM: expected an address, as SMTP_URL is set'],
    [{ MAIL_FROM: 'nobody' }, 'MAIL_FROM: expected an address such as'],
    [{ MAIL_FROM: 'a@b.example\r\nBcc: x@y.example' }, 'MAIL_FROM: expected an address such as'],
    [{ MAIL_FROM: 'x\nBcc: <a@b.example>' }, 'MAIL_FROM: expected an address such as'],
    [{ PUBLIC_URL: 'javascript:alert(1)' }, 'PUBLIC_URL:'],
    [{ WEBHOOK_ALLOW_HTTP: 'yes' }, 'WEBHOOK_ALLOW_HTTP: expected true or false'],
    [{ WEBHOOK_ALLOWED_NETWORKS: '10.0.0.0/99' }, 'WEBHOOK_ALLOWED_NETWORKS: expected networks such as'],
    [{ SECRET_KEYS: 'short' }, 'SECRET_KEYS:'],
  ])('refuse %o', (environment, message) => {
    expect(() => readConfig(configSchema, environment)).toThrow(message);
  });

  it('never show the password of the mail server', () => {
    const SMTP_URL = 'smtps://user:hunter2@';
    expect(() => readConfig(configSchema, { SMTP_URL })).toThrow(expect.not.stringContaining('hunter2'));
  });

  it.each([
    ['alerts@example.com', 'example.com'],
    ['Logpond <alerts@mail.example.com>', 'mail.example.com'],
    ['"Logpond, Inc." <alerts@example.com>', 'example.com'],
    ['<alerts@example.com>', 'example.com'],
  ])('MAIL_FROM %s has the domain %s', (text, domain) => {
    expect(readMailFrom(text).domain).toBe(domain);
  });
});
