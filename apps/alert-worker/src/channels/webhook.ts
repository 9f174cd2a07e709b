import { request as requestHttp, Agent as HttpAgent, STATUS_CODES } from 'node:http';
import type { IncomingMessage, RequestOptions } from 'node:http';
import { request as requestHttps, Agent as HttpsAgent } from 'node:https';
import type { LookupFunction } from 'node:net';
import { isReservedHeader } from '@logpond/schema/webhook-rules';
import { renderWebhookBody, signWebhook } from '../webhook-body.ts';
import { EgressError, resolveTarget } from '../webhook-egress.ts';
import type { Address, EgressRules } from '../webhook-egress.ts';
import type { Notice, Sent } from './notice.ts';

/** Resolving and connecting, TLS included. */
const CONNECT_TIMEOUT_MS = 5_000;
const TOTAL_TIMEOUT_MS = 10_000;
const ANSWER_BYTES_MAX = 65_536;

export type WebhookTarget = {
  url: string;
  headers: Readonly<Record<string, string>>;
  secret: string | undefined;
};
export type WebhookOptions = {
  egress: EgressRules;
  now: () => number;
  resolve?: Parameters<typeof resolveTarget>[2];
  connectTimeoutMs?: number;
  totalTimeoutMs?: number;
};

/**
 * Posts a notification to a web server, once; no redirect is followed. Never throws: what went wrong is in the answer,
 * which holds nothing of what the server wrote but its status.
 */
export async function postWebhook(
  notice: Notice,
  target: WebhookTarget,
  options: WebhookOptions,
): Promise<Sent> {
  const totalMs = options.totalTimeoutMs ?? TOTAL_TIMEOUT_MS;
  const connectMs = options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS;
  const total = AbortSignal.timeout(totalMs);
  const connect = new AbortController();
  const timer = setTimeout(() => connect.abort(), connectMs);
  try {
    const url = new URL(target.url);
    const resolved = resolveTarget(url, options.egress, options.resolve);
    const addresses = await Promise.race([resolved, whenAborted(connect.signal)]);
    const body = renderWebhookBody(notice);
    const status = await post(url, addresses, body, {
      headers: makeHeaders(notice, target, body, options.now()),
      signal: AbortSignal.any([total, connect.signal]),
      onConnect: () => clearTimeout(timer),
    });
    return judge(status);
  } catch (error) {
    if (error instanceof EgressError) {
      return { status: error.isFinal ? 'failed' : 'retry', answer: error.message };
    }
    if (connect.signal.aborted) return { status: 'retry', answer: `no connection within ${connectMs} ms` };
    if (total.aborted) return { status: 'retry', answer: `no answer within ${totalMs} ms` };
    return { status: 'retry', answer: `no answer (${readCode(error)})` };
  } finally {
    clearTimeout(timer);
  }
}

function makeHeaders(
  notice: Notice,
  { headers, secret }: WebhookTarget,
  body: string,
  nowMs: number,
): Record<string, string> {
  const given = Object.entries(headers).filter(([name]) => !isReservedHeader(name));
  return {
    ...Object.fromEntries(given),
    'Content-Type': 'application/json',
    'Content-Length': String(Buffer.byteLength(body)),
    'User-Agent': 'Logpond',
    'X-Logpond-Delivery': notice.id,
    ...(secret !== undefined && { 'X-Logpond-Signature': signWebhook(secret, body, nowMs) }),
  };
}

/** @returns the status of the answer, once it was read to its end or to 64 KB. */
async function post(
  url: URL,
  addresses: readonly Address[],
  body: string,
  options: { headers: Record<string, string>; signal: AbortSignal; onConnect: () => void },
): Promise<number> {
  const { onConnect, ...given } = options;
  const isSecure = url.protocol === 'https:';
  const common: RequestOptions = { method: 'POST', lookup: answerWith(addresses), ...given };
  const agent = isSecure ? new HttpsAgent({ keepAlive: false }) : new HttpAgent({ keepAlive: false });
  const answered = Promise.withResolvers<IncomingMessage>();
  const request = isSecure ? requestHttps(url, { ...common, agent }) : requestHttp(url, { ...common, agent });
  request.once('response', answered.resolve).on('error', answered.reject);
  request.once('socket', (socket) => socket.once(isSecure ? 'secureConnect' : 'connect', onConnect));
  request.end(body);
  try {
    const response = await answered.promise;
    let bytes = 0;
    for await (const chunk of response as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > ANSWER_BYTES_MAX) break;
    }
    return response.statusCode ?? 0;
  } finally {
    request.destroy();
    agent.destroy();
  }
}

/** Instead of a name server: only what was resolved and checked before. */
function answerWith(addresses: readonly Address[]): LookupFunction {
  return (_host, { all }, callback) => {
    const [first] = addresses;
    if (all === true) callback(null, [...addresses]);
    else callback(null, first?.address ?? '', first?.family ?? 4);
  };
}

/** Our own words for a status: those of the server are not shown to users. */
function judge(status: number): Sent {
  const answer = `${status} ${STATUS_CODES[status] ?? ''}`.trim();
  if (status >= 200 && status < 300) return { status: 'sent', answer };
  if (status >= 300 && status < 400)
    return { status: 'retry', answer: `${answer}; redirects are not followed` };
  const isFinal = status >= 400 && status < 500 && status !== 408 && status !== 429;
  return { status: isFinal ? 'failed' : 'retry', answer };
}

async function whenAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(new Error('timed out')), { once: true });
  });
}

function readCode(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown failure';
  const inner: unknown = error instanceof AggregateError ? error.errors[0] : error;
  if (inner instanceof Error && 'code' in inner && typeof inner.code === 'string') return inner.code;
  return 'the connection failed';
}
