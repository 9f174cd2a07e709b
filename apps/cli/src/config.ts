/* oxlint-disable node/no-process-env -- the command line is no server: its only settings are where the service is and the colours, read here and nowhere else. */
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { CliError, EXIT } from './cli-error.ts';

/** Where the service answers; `baseUrl` ends in /api/v1, without a slash after it. */
export type Connection = { readonly baseUrl: string; readonly apiKey: string };

type Environment = Readonly<Record<string, string | undefined>>;

const CHECKOUT_DIR = resolve(import.meta.dirname, '../../..');

/**
 * Finds the service: LOGPOND_URL with LOGPOND_API_KEY (or LOGPOND_API_KEY_FILE), else the
 * credentials.json that `npm start` wrote. An address from the environment is never combined with the
 * key of the file: that would hand the local key to a stranger. Throws CliError (exit 3).
 */
export function readConnection(env: Environment = process.env): Connection {
  const url = env['LOGPOND_URL'];
  const apiKey = env['LOGPOND_API_KEY'] ?? readKeyFile(env['LOGPOND_API_KEY_FILE']);
  if (url && !apiKey) {
    throw new CliError(
      EXIT.unreachable,
      'LOGPOND_URL is set but LOGPOND_API_KEY is not: set both or neither',
    );
  }
  if (url && apiKey) return checkConnection(url, apiKey, 'LOGPOND_URL');
  const file = join(resolve(env['LOGPOND_DATA_DIR'] ?? join(CHECKOUT_DIR, '.logpond')), 'credentials.json');
  const stored = readCredentials(file);
  return checkConnection(stored.baseUrl, apiKey ?? stored.apiKey, file);
}

/** True when human output to this stream may carry colours (https://no-color.org). */
export function wantsColour(stream: { isTTY?: boolean }, env: Environment = process.env): boolean {
  if (env['NO_COLOR']) return false;
  return stream.isTTY === true && env['TERM'] !== 'dumb';
}

function readKeyFile(path: string | undefined): string | undefined {
  if (!path) return undefined;
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (cause) {
    throw new CliError(EXIT.unreachable, `cannot read LOGPOND_API_KEY_FILE ${path}: ${String(cause)}`, {
      cause,
    });
  }
}

function readCredentials(file: string): Connection {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    const sentence = `no credentials: set LOGPOND_URL and LOGPOND_API_KEY, or run npm start first (there is no readable ${file})`;
    throw new CliError(EXIT.unreachable, sentence, { cause });
  }
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && 'baseUrl' in value && 'apiKey' in value) {
      const { baseUrl, apiKey } = value;
      if (typeof baseUrl === 'string' && typeof apiKey === 'string') return { baseUrl, apiKey };
    }
  } catch {
    // Falls through to the one sentence for every kind of damage.
  }
  throw new CliError(EXIT.unreachable, `cannot use ${file}: expected JSON with baseUrl and apiKey`);
}

function checkConnection(url: string, apiKey: string, origin: string): Connection {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new CliError(
      EXIT.unreachable,
      `cannot use the address of ${origin}: expected http(s)://…/api/v1, got "${url}"`,
    );
  }
  if (!/^lp_[0-9A-Za-z]+$/.test(apiKey)) {
    throw new CliError(
      EXIT.unreachable,
      'cannot use the API key: expected lp_ followed by letters and digits',
    );
  }
  const trimmed = url.replace(/\/+$/, '');
  return { baseUrl: /\/api\/v\d+$/.test(trimmed) ? trimmed : `${trimmed}/api/v1`, apiKey };
}
