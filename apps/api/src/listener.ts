import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server, ServerResponse } from 'node:http';
import { Server as NetServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { getRequestListener } from '@hono/node-server';
import { ApiError } from '@logpond/schema/api-error';
import type { ApiApp } from './app.ts';
import { renderError } from './errors.ts';

/** S40: a client has this long for its headers, and for the whole request; an answer may take as long as it likes. */
const HEADERS_TIMEOUT_MS = 15_000;
const REQUEST_TIMEOUT_MS = 60_000;
/** Longer than the idle time of usual balancers, so that they, not we, end an idle connection. */
const KEEP_ALIVE_TIMEOUT_MS = 75_000;
const HEADER_BYTES_MAX = 16 * 1024;
const HEADERS_MAX = 100;
const CONNECTIONS_CHECK_MS = 5_000;
/** How long clients are told to go before their idle connections are closed. */
const FAREWELL_MS = 300;
/** Requests under way get this long at shutdown; then their connections are cut. */
const DRAIN_TIMEOUT_MS = 15_000;

/** The open port of the API. */
export class Listener {
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  /** @throws {Error} when the port cannot be had. */
  static async open(app: ApiApp, port: number, host: string): Promise<Listener> {
    const answer = getRequestListener(async (request, env) => app.fetch(request, env), {
      errorHandler: () =>
        badRequest('expected an HTTP/1.1 request with a valid target and Host header, got another'),
    });
    const server = createServer(
      {
        headersTimeout: HEADERS_TIMEOUT_MS,
        requestTimeout: REQUEST_TIMEOUT_MS,
        keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
        connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
        maxHeaderSize: HEADER_BYTES_MAX,
        noDelay: true,
        // Node would answer without a body; a request without Host is refused above, with the error object.
        requireHostHeader: false,
      },
      (incoming, outgoing) => void answer(incoming, outgoing),
    );
    // An expectation nobody knows is passed over, not answered 417 without a body.
    server.on('checkExpectation', (incoming, outgoing) => void answer(incoming, outgoing));
    server.maxHeadersCount = HEADERS_MAX;
    server.on('clientError', refuseBrokenRequest);
    server.listen(port, host);
    await once(server, 'listening');
    return new Listener(server);
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /**
   * First tells the clients with their answers that their connections end, then takes no new ones, waits for
   * the requests under way, at most 15 s, and closes. Cutting a kept connection at once would meet requests
   * that are on their way, and their clients could not know whether they were read.
   */
  async close(): Promise<void> {
    this.#server.prependListener('request', (_request, response: ServerResponse) => {
      response.setHeader('Connection', 'close');
    });
    await delay(FAREWELL_MS);
    const closed = once(this.#server, 'close');
    // Not http's own close: it cuts connections that were accepted a moment ago, with their request on its way.
    NetServer.prototype.close.call(this.#server);
    await Promise.race([closed, delay(FAREWELL_MS)]);
    // A connection that was busy a moment ago is kept alive unless somebody looks again.
    const sweep = setInterval(() => this.#server.closeIdleConnections(), 50);
    const cut = setTimeout(() => this.#server.closeAllConnections(), DRAIN_TIMEOUT_MS);
    await closed;
    clearInterval(sweep);
    clearTimeout(cut);
  }
}

function badRequest(message: string): Response {
  const requestId = crypto.randomUUID();
  return new Response(renderError(new ApiError('VALIDATION_ERROR', { public: message }), requestId), {
    status: 400,
    headers: { 'Content-Type': 'application/json', 'X-Request-Id': requestId, Connection: 'close' },
  });
}

/** What is not HTTP never reaches a route; it gets the same kind of error, then the connection ends. */
function refuseBrokenRequest(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const requestId = crypto.randomUUID();
  const message = describeBrokenRequest(error.code);
  const body = renderError(new ApiError('VALIDATION_ERROR', { public: message }), requestId);
  socket.end(
    `HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nX-Request-Id: ${requestId}\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
}

function describeBrokenRequest(code: string | undefined): string {
  if (code === 'HPE_HEADER_OVERFLOW')
    return `expected headers of at most ${HEADER_BYTES_MAX} bytes, got more`;
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return `expected the whole request within ${REQUEST_TIMEOUT_MS / 1_000} s`;
  return 'expected a well-formed HTTP/1.1 request';
}
