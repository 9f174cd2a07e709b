import { parseRetryAfterMs } from './back-off.ts';
import { CliError, EXIT } from './cli-error.ts';
import type { Connection } from './config.ts';

export type ApiRequest = {
  method?: 'GET' | 'POST';
  path: string;
  query?: URLSearchParams;
  headers?: Record<string, string>;
  body?: Uint8Array<ArrayBuffer>;
  timeoutMs: number;
  signal?: AbortSignal;
};

export type ApiAnswer = {
  status: number;
  body: string;
  retryAfterMs: number | undefined;
  serverNowMs: number;
};

export type ErrorAnswer = {
  error: string;
  code: string;
  details: { index?: number; path: string; message: string }[];
};

/** The service could not be reached, or broke off: nothing is known about what it did. */
export class NetworkError extends CliError {
  constructor(connection: Connection, cause: unknown) {
    super(EXIT.unreachable, `cannot reach ${connection.baseUrl}: ${describeCause(cause)}`, { cause });
    this.name = 'NetworkError';
  }
}

/**
 * One request with the API key, answered in full within `timeoutMs`. The body is at most one page of
 * entries (1000 of 256 KB). Throws NetworkError without an answer, the signal's reason when aborted.
 */
export async function requestApi(connection: Connection, request: ApiRequest): Promise<ApiAnswer> {
  const timeout = AbortSignal.timeout(request.timeoutMs);
  const signal = request.signal ? AbortSignal.any([request.signal, timeout]) : timeout;
  try {
    const response = await openRequest(connection, request, signal);
    return await readAnswer(response);
  } catch (cause) {
    request.signal?.throwIfAborted();
    throw cause instanceof CliError ? cause : new NetworkError(connection, cause);
  }
}

/** Starts a request and hands out the response with its body unread; the caller owns the time limit through `signal`. */
export function openRequest(
  connection: Connection,
  request: Omit<ApiRequest, 'timeoutMs' | 'signal'>,
  signal: AbortSignal,
): Promise<Response> {
  const query = request.query && request.query.size > 0 ? `?${request.query.toString()}` : '';
  return fetch(`${connection.baseUrl}${request.path}${query}`, {
    method: request.method ?? 'GET',
    headers: { 'X-API-Key': connection.apiKey, ...request.headers },
    body: request.body ?? null,
    signal,
    // A redirect would carry the API key to another host.
    redirect: 'error',
  });
}

/** Reads a response to its end. */
export async function readAnswer(response: Response): Promise<ApiAnswer> {
  const nowMs = Date.now();
  const serverNowMs = Date.parse(response.headers.get('date') ?? '');
  return {
    status: response.status,
    body: await response.text(),
    retryAfterMs: parseRetryAfterMs(response.headers.get('retry-after'), nowMs),
    serverNowMs: Number.isNaN(serverNowMs) ? nowMs : serverNowMs,
  };
}

/** Reads the error object of the interface; an answer of something else (a proxy) becomes a sentence with its status. */
export function readError(answer: ApiAnswer): ErrorAnswer {
  const value = parseObject(answer.body);
  const details: ErrorAnswer['details'] = [];
  for (const item of Array.isArray(value['details']) ? (value['details'] as unknown[]) : []) {
    const { index, path, message } = (item ?? {}) as Record<string, unknown>;
    const detail = { path: asText(path), message: asText(message) };
    details.push(typeof index === 'number' ? { index, ...detail } : detail);
  }
  const error = asText(value['error']) || `the answer was HTTP ${answer.status}`;
  return { error, code: asText(value['code']), details };
}

/** The sentence for an answer that no retry will better; wrong credentials and addresses exit with 3. */
export function toRefusal(connection: Connection, answer: ApiAnswer): CliError {
  const { error, code } = readError(answer);
  const sentence = `${connection.baseUrl} refused: ${error}${code ? ` (${answer.status} ${code})` : ''}`;
  return new CliError(answer.status === 400 ? EXIT.usage : EXIT.unreachable, sentence);
}

/** True when the same request may succeed later: overload, a store that is down, a first attempt still running. */
export function isRetryable(status: number): boolean {
  return status === 408 || status === 409 || status === 425 || status === 429 || status >= 500;
}

/** Parses JSON text to an object; anything else gives an empty one. */
export function parseObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function describeCause(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  if (cause.name === 'TimeoutError') return 'no answer in time';
  const inner = cause.cause instanceof Error ? cause.cause : cause;
  const code = 'code' in inner ? String(inner.code) : '';
  return inner.message || code || cause.message;
}
