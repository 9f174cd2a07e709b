import { lookup } from 'node:dns/promises';
import { BlockList, isIP } from 'node:net';
import { networkInterfaces } from 'node:os';

/** Where a webhook may go without being asked about its network; a port that is not written is '' here. */
const PORTS: Readonly<Record<string, readonly string[]>> = { 'https:': ['', '8443'], 'http:': [''] };
const ADDRESSES_MAX = 64;

/** What the operator can do about a refusal. */
const ALLOW_HTTP = 'the operator can allow http with WEBHOOK_ALLOW_HTTP';
const ALLOW_NETWORK = 'the operator can allow a network, at any port, with WEBHOOK_ALLOWED_NETWORKS';

/** Special-purpose addresses (IANA registries of RFC 6890), and those of clouds that answer machines about themselves. */
const FORBIDDEN_V4 = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '168.63.129.16/32',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.31.196.0/24',
  '192.52.193.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '192.175.48.0/24',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
];

/** All of IPv6 that is public lies in here, and none of what carries an IPv4 address (mapped, translated, NAT64) … */
const PUBLIC_V6 = '2000::/3';
/** … except for these: Teredo and other protocol assignments, documentation, and 6to4. */
const FORBIDDEN_V6 = ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20', '2620:4f:8000::/48'];

const forbidden = makeList([...FORBIDDEN_V4, ...FORBIDDEN_V6]);
const publicV6 = makeList([PUBLIC_V6]);

/** Why a webhook is not sent; fit to be shown to users. `isFinal`: trying again does not help. */
export class EgressError extends Error {
  override readonly name = 'EgressError';
  readonly isFinal: boolean;

  constructor(message: string, isFinal: boolean) {
    super(message);
    this.isFinal = isFinal;
  }
}

export type EgressRules = { allowHttp: boolean; allowedNetworks: BlockList };
export type Address = { address: string; family: 4 | 6 };
type Resolve = (host: string) => Promise<readonly Address[]>;

/**
 * Reads a list of networks such as `10.1.0.0/16,fd00:1::/32`; an address alone is a network of one.
 *
 * @throws {Error} naming the first that is none.
 */
export function parseNetworks(text: string): BlockList {
  const parts = text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
  return makeList(parts);
}

/**
 * Finds where a webhook's URL leads, and refuses what it must not reach. The name is resolved once and every address
 * is looked at; the caller must connect to one of those returned, so that a second answer of the name server is never
 * used.
 *
 * @throws {EgressError}
 */
export async function resolveTarget(
  url: URL,
  rules: EgressRules,
  resolve: Resolve = resolveAll,
): Promise<Address[]> {
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && rules.allowHttp)) {
    throw new EgressError(`expected an https URL, got ${url.protocol}// (${ALLOW_HTTP})`, true);
  }
  if (url.username !== '' || url.password !== '') {
    throw new EgressError('expected a URL without user and password', true);
  }
  const addresses = await findAddresses(url, resolve);
  const isAllowed = addresses.every(({ address, family }) =>
    rules.allowedNetworks.check(address, family === 4 ? 'ipv4' : 'ipv6'),
  );
  if (isAllowed) return addresses;
  if (PORTS[url.protocol]?.includes(url.port) !== true) {
    const expected = url.protocol === 'https:' ? '443 or 8443' : '80';
    throw new EgressError(`expected port ${expected}, got ${url.port} (${ALLOW_NETWORK})`, true);
  }
  for (const { address, family } of addresses) {
    const isListed = rules.allowedNetworks.check(address, family === 4 ? 'ipv4' : 'ipv6');
    if (!isListed && isForbidden(address, family)) {
      throw new EgressError(`the address is private, local or reserved (${ALLOW_NETWORK})`, true);
    }
  }
  return addresses;
}

/** Whether an address is none of the public Internet, or this machine's own network. */
export function isForbidden(address: string, family: 4 | 6): boolean {
  if (family === 4) return forbidden.check(address, 'ipv4') || isOwnNetwork(address, 'ipv4');
  return (
    !publicV6.check(address, 'ipv6') || forbidden.check(address, 'ipv6') || isOwnNetwork(address, 'ipv6')
  );
}

function isOwnNetwork(address: string, family: 'ipv4' | 'ipv6'): boolean {
  const own = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  const networks = own.flatMap(({ cidr, address: ownAddress }) => {
    const prefix = Number(cidr?.split('/')[1] ?? 0);
    return [ownAddress, ...(cidr !== null && prefix > 0 ? [cidr] : [])];
  });
  return makeList(networks.map((network) => network.replace(/%[^/]*/, ''))).check(address, family);
}

async function findAddresses(url: URL, resolve: Resolve): Promise<Address[]> {
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const family = isIP(host);
  if (family === 4 || family === 6) return [{ address: host, family }];
  let addresses: readonly Address[];
  try {
    addresses = await resolve(host);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'no answer';
    throw new EgressError(`the name cannot be resolved (${code})`, false);
  }
  if (addresses.length === 0) throw new EgressError('the name has no address', false);
  if (addresses.length > ADDRESSES_MAX) {
    throw new EgressError(`expected at most ${ADDRESSES_MAX} addresses of the name`, true);
  }
  return [...addresses];
}

async function resolveAll(host: string): Promise<Address[]> {
  const found = await lookup(host, { all: true, order: 'verbatim' });
  return found.map(({ address, family }) => ({ address, family: family === 6 ? 6 : 4 }));
}

function makeList(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of networks) {
    const [address = '', prefix, ...rest] = network.split('/');
    const version = isIP(address);
    const bits = version === 4 ? 32 : 128;
    const isPrefix = prefix === undefined || (/^\d{1,3}$/.test(prefix) && Number(prefix) <= bits);
    if (version === 0 || !isPrefix || rest.length > 0) {
      throw new Error(`expected networks such as 10.1.0.0/16, got ${JSON.stringify(network)}`);
    }
    list.addSubnet(address, Number(prefix ?? bits), version === 4 ? 'ipv4' : 'ipv6');
  }
  return list;
}
