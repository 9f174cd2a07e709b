const SENDER =
  /^(?:(?<name>[^<>\p{Cc}]{0,200}?)\s*<(?<inBrackets>[^<>\s@,;]{1,64}@[A-Za-z0-9.-]{1,253})>|(?<bare>[^<>\s@,;]{1,64}@[A-Za-z0-9.-]{1,253}))$/u;

/**
 * Reads MAIL_FROM: `alerts@example.com` or `Logpond <alerts@example.com>`.
 *
 * @throws {Error} saying what was expected.
 */
export function readMailFrom(text: string): { address: string; domain: string } {
  const { inBrackets, bare } = SENDER.exec(text.trim())?.groups ?? {};
  const address = inBrackets ?? bare;
  if (address === undefined) {
    throw new Error('expected an address such as alerts@example.com or Logpond <alerts@example.com>');
  }
  return { address, domain: address.slice(address.lastIndexOf('@') + 1) };
}
