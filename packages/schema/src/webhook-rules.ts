const SCHEMES: readonly string[] = ['https:', 'http:'];

/** Headers that say how the message is cut and where it goes, or that are the notifier's own. */
const RESERVED_HEADER =
  /^(?:host|content-.*|transfer-encoding|connection|keep-alive|upgrade|te|trailer|expect|user-agent|proxy-.*|x-logpond-.*)$/i;

/**
 * What is wrong with the URL of a webhook wherever it is sent from; undefined when nothing is. Where it leads (its
 * port and addresses) is for the notifier to judge, by its settings, each time it sends.
 */
export function checkWebhookUrl(url: string): string | undefined {
  // URL parsers leave line ends and tabs out, and read another URL than the user sees.
  if (/[\s\p{Cc}]/u.test(url) || !URL.canParse(url)) {
    return `expected a URL such as https://hooks.example.com/x, got ${JSON.stringify(url)}`;
  }
  const { protocol, username, password, port } = new URL(url);
  if (!SCHEMES.includes(protocol)) return `expected an https or http URL, got ${protocol}//`;
  if (username + password !== '') {
    return 'expected a URL without user and password; put credentials in headers';
  }
  return port === '0' ? 'expected a port from 1 to 65535, got 0' : undefined;
}

/** Whether a rule may not set this header of its webhook: Host, Content-*, Connection, X-Logpond-* and the like. */
export function isReservedHeader(name: string): boolean {
  return RESERVED_HEADER.test(name);
}
