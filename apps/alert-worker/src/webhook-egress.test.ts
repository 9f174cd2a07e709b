import { describe, expect, it } from 'vitest';
import { EgressError, isForbidden, parseNetworks, resolveTarget } from './webhook-egress.ts';
import type { Address, EgressRules } from './webhook-egress.ts';

const STRICT: EgressRules = { allowHttp: false, allowedNetworks: parseNetworks('') };
const PUBLIC: Address = { address: '93.184.216.34', family: 4 };

function answering(...addresses: Address[]): (host: string) => Promise<Address[]> {
  return async () => addresses;
}

async function refuse(url: string, rules = STRICT, resolve = answering(PUBLIC)): Promise<EgressError> {
  const outcome = await resolveTarget(new URL(url), rules, resolve).then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(outcome instanceof EgressError)) throw new TypeError(`expected a refusal of ${url}`);
  return outcome;
}

describe('addresses that webhooks must not reach', () => {
  it.each([
    ['unspecified', '0.0.0.0'],
    ['this network', '0.1.2.3'],
    ['loopback', '127.0.0.1'],
    ['loopback, another', '127.255.255.254'],
    ['private', '10.0.0.1'],
    ['private', '172.16.0.1'],
    ['private, last', '172.31.255.255'],
    ['private', '192.168.1.1'],
    ['link-local', '169.254.0.1'],
    ['metadata of clouds', '169.254.169.254'],
    ['metadata of a container', '169.254.170.2'],
    ['metadata of Azure', '168.63.129.16'],
    ['metadata of Alibaba', '100.100.100.200'],
    ['metadata of Oracle', '192.0.0.192'],
    ['CGNAT', '100.64.0.1'],
    ['CGNAT, last', '100.127.255.255'],
    ['documentation', '192.0.2.1'],
    ['documentation', '198.51.100.1'],
    ['documentation', '203.0.113.1'],
    ['benchmarks', '198.19.255.255'],
    ['6to4 relay', '192.88.99.1'],
    ['multicast', '224.0.0.1'],
    ['multicast, last', '239.255.255.255'],
    ['reserved', '240.0.0.1'],
    ['broadcast', '255.255.255.255'],
    ['unspecified', '::'],
    ['loopback', '::1'],
    ['IPv4-compatible', '::10.0.0.1'],
    ['IPv4-mapped private', '::ffff:10.0.0.1'],
    ['IPv4-mapped loopback', '::ffff:127.0.0.1'],
    ['IPv4-mapped in hexadecimal', '::ffff:7f00:1'],
    ['IPv4-mapped public', '::ffff:93.184.216.34'],
    ['IPv4-translated', '::ffff:0:127.0.0.1'],
    ['NAT64', '64:ff9b::7f00:1'],
    ['NAT64, local', '64:ff9b:1::1'],
    ['6to4 of 127.0.0.1', '2002:7f00:1::1'],
    ['6to4 of a public one', '2002:5db8:d822::1'],
    ['Teredo', '2001:0:4136:e378:8000:63bf:3fff:fdd2'],
    ['ORCHID', '2001:20::1'],
    ['documentation', '2001:db8::1'],
    ['documentation', '3fff::1'],
    ['discard', '100::1'],
    ['unique local', 'fc00::1'],
    ['unique local', 'fd12:3456::1'],
    ['metadata of AWS', 'fd00:ec2::254'],
    ['link-local', 'fe80::1'],
    ['site-local', 'fec0::1'],
    ['multicast', 'ff02::1'],
    ['segment routing', '5f00::1'],
    ['not allocated', '8000::1'],
  ])('%s %s', async (_what, address) => {
    const family = address.includes(':') ? 6 : 4;
    expect(isForbidden(address, family)).toBe(true);
    const refusal = await refuse('https://hooks.example.com/x', STRICT, answering({ address, family }));
    expect(refusal.isFinal).toBe(true);
    // What a name leads to is not told to whoever asks.
    expect(refusal.message).not.toContain(address);
  });

  it.each([
    ['93.184.216.34', 4],
    ['172.15.255.255', 4],
    ['172.32.0.1', 4],
    ['100.63.255.255', 4],
    ['100.128.0.1', 4],
    ['223.255.255.254', 4],
    ['2606:2800:220:1:248:1893:25c8:1946', 6],
    ['2a00:1450:4001:830::200e', 6],
    ['2001:4860:4860::8888', 6],
  ] as const)('but %s may be reached', (address, family) => {
    expect(isForbidden(address, family)).toBe(false);
  });

  it('one of several is enough to refuse', async () => {
    const addresses = answering(PUBLIC, { address: '127.0.0.1', family: 4 });
    expect((await refuse('https://hooks.example.com', STRICT, addresses)).message).toContain('private');
  });
});

describe('URLs that webhooks must not have', () => {
  it.each([
    [
      'http://hooks.example.com/',
      'expected an https URL, got http:// (the operator can allow http with WEBHOOK_ALLOW_HTTP',
    ],
    ['ftp://hooks.example.com/', 'expected an https URL, got ftp://'],
    [
      'https://hooks.example.com:22/',
      'expected port 443 or 8443, got 22 (the operator can allow a network, at any port',
    ],
    ['https://hooks.example.com:80/', 'expected port 443 or 8443, got 80'],
    ['https://user:password@hooks.example.com/', 'without user and password'],
    ['https://127.0.0.1/', 'private, local or reserved (the operator can allow a network'],
    ['https://0x7f.1/', 'private, local or reserved'],
    ['https://2130706433/', 'private, local or reserved'],
    ['https://[::1]/', 'private, local or reserved'],
    ['https://[::ffff:127.0.0.1]/', 'private, local or reserved'],
  ])('%s', async (url, message) => {
    expect((await refuse(url)).message).toContain(message);
  });

  it.each(['https://hooks.example.com/', 'https://hooks.example.com:8443/x'])(
    'but %s is fine',
    async (url) => {
      expect(await resolveTarget(new URL(url), STRICT, answering(PUBLIC))).toEqual([PUBLIC]);
    },
  );

  it('http only where the operator allows it, and then at port 80 only', async () => {
    const rules = { ...STRICT, allowHttp: true };
    for (const url of ['http://hooks.example.com/', 'http://hooks.example.com:80/x']) {
      expect(await resolveTarget(new URL(url), rules, answering(PUBLIC))).toEqual([PUBLIC]);
    }
    for (const port of ['443', '8443', '8080']) {
      const { message } = await refuse(`http://hooks.example.com:${port}/`, rules);
      expect(message).toContain(`expected port 80, got ${port} (`);
    }
    expect((await refuse('https://hooks.example.com:80/', rules)).message).toContain('got 80');
  });
});

describe('networks that the operator lists', () => {
  const rules: EgressRules = {
    allowHttp: true,
    allowedNetworks: parseNetworks('10.1.0.0/16, fd00:1::/32,192.168.7.9'),
  };

  it.each([
    ['http://10.1.2.3:9000/', '10.1.2.3'],
    ['http://192.168.7.9/', '192.168.7.9'],
    ['http://[fd00:1::5]:81/', 'fd00:1::5'],
  ])('%s is reached at any port', async (url, address) => {
    const [found] = await resolveTarget(new URL(url), rules);
    expect(found?.address).toBe(address);
  });

  it.each(['https://10.2.0.1/', 'https://192.168.7.10/', 'https://[fd00:2::5]/'])(
    '%s is not',
    async (url) => {
      expect((await refuse(url, rules)).message).toContain('private');
    },
  );

  it('another port is refused when one of the addresses is not listed', async () => {
    const addresses = answering({ address: '10.1.2.3', family: 4 }, PUBLIC);
    expect((await refuse('https://hooks.example.com:9000/', rules, addresses)).message).toContain('port');
  });

  it.each(['10.0.0.0/33', 'example.com', '10.0.0.0/8/8', '10.0.0/8', 'fd00::/129', '10.0.0.0/x'])(
    'refuses %s as a network',
    (text) => {
      expect(() => parseNetworks(text)).toThrow('expected networks such as 10.1.0.0/16');
    },
  );
});

it('a name that is not found now may be found later', async () => {
  const resolve = async (): Promise<Address[]> => {
    throw Object.assign(new Error('getaddrinfo'), { code: 'ENOTFOUND' });
  };
  const refusal = await refuse('https://hooks.example.com', STRICT, resolve);
  expect(refusal).toMatchObject({ isFinal: false, message: 'the name cannot be resolved (ENOTFOUND)' });
});
