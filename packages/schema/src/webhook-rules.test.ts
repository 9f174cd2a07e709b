import { describe, expect, it } from 'vitest';
import { checkWebhookUrl, isReservedHeader } from './webhook-rules.ts';

describe('the URL of a webhook', () => {
  it.each(['https://hooks.example.com/x?y=1#z', 'http://hooks.example.com', 'HTTPS://[2001:db8::1]:8443/'])(
    '%s is taken',
    (url) => {
      expect(checkWebhookUrl(url)).toBeUndefined();
    },
  );

  it.each([
    ['ftp://hooks.example.com/', 'expected an https or http URL, got ftp://'],
    ['javascript:alert(1)', 'expected an https or http URL, got javascript://'],
    ['hooks.example.com/x', 'got "hooks.example.com/x"'],
    ['https://', 'got "https://"'],
    ['https://hooks.example.com/a\nb', String.raw`got "https://hooks.example.com/a\nb"`],
    [' https://hooks.example.com/', 'got " https://hooks.example.com/"'],
    ['https://user@hooks.example.com/', 'without user and password'],
    ['https://:password@hooks.example.com/', 'without user and password'],
    ['https://hooks.example.com:0/', 'expected a port from 1 to 65535, got 0'],
  ])('%j is refused', (url, message) => {
    expect(checkWebhookUrl(url)).toContain(message);
  });
});

describe('a header of a webhook', () => {
  it.each(['Host', 'content-length', 'Content-Type', 'Content-Encoding', 'TRANSFER-ENCODING', 'Connection'])(
    '%s is reserved',
    (name) => {
      expect(isReservedHeader(name)).toBe(true);
    },
  );

  it.each(['Keep-Alive', 'Upgrade', 'TE', 'Trailer', 'Expect', 'User-Agent', 'Proxy-Authorization'])(
    '%s is reserved',
    (name) => {
      expect(isReservedHeader(name)).toBe(true);
    },
  );

  it.each(['X-Logpond-Signature', 'x-logpond-delivery', 'X-Logpond-New'])('%s is reserved', (name) => {
    expect(isReservedHeader(name)).toBe(true);
  });

  it.each(['Authorization', 'X-Token', 'Hosts', 'X-Host', 'Contents', 'Accept'])('%s is free', (name) => {
    expect(isReservedHeader(name)).toBe(false);
  });
});
