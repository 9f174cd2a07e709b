import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';

/** A request as the server took it. */
export type ReceivedWebhook = {
  path: string;
  method: string;
  headers: IncomingHttpHeaders;
  /** As it came, for the signature. */
  body: string;
  /** Undefined when the body is no JSON. */
  json: unknown;
  arrivedAtMs: number;
};

type Reply = (request: IncomingMessage, response: ServerResponse) => void;

/** A web server on loopback that keeps what is posted to it, and answers as it is told. */
export class WebhookSink implements AsyncDisposable {
  /** What was posted, in order, also what was answered with a failure. */
  readonly received: ReceivedWebhook[] = [];
  readonly #server: Server;
  readonly #scheme: 'http' | 'https';
  readonly #replies: Reply[] = [];
  /** When nothing else was ordered. */
  #usual: Reply = (_request, response) => response.writeHead(204).end();
  connections = 0;

  private constructor(tls: { key: string; cert: string } | undefined) {
    const listener = (request: IncomingMessage, response: ServerResponse): void => {
      void this.#receive(request, response);
    };
    this.#server = tls === undefined ? createServer(listener) : createSecureServer(tls, listener);
    this.#scheme = tls === undefined ? 'http' : 'https';
    this.#server.on('connection', () => {
      this.connections += 1;
    });
  }

  /** @param options `tls`: speaks https with this key and certificate; `port` 0: any. */
  static async open(
    options: { port?: number; tls?: { key: string; cert: string } } = {},
  ): Promise<WebhookSink> {
    const sink = new WebhookSink(options.tls);
    sink.#server.listen(options.port ?? 0, '127.0.0.1');
    await once(sink.#server, 'listening');
    return sink;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `${this.#scheme}://127.0.0.1:${this.port}/hook`;
  }

  /** The next `times` posts are answered so. */
  replyNext(times: number, reply: number | Reply): void {
    for (let time = 0; time < times; time += 1) this.#replies.push(asReply(reply));
  }

  /** All posts are answered so, from now on. */
  reply(reply: number | Reply): void {
    this.#usual = asReply(reply);
  }

  async #receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
    } catch {
      // The client went away amid its request: it was not received.
      return;
    }
    const body = Buffer.concat(chunks).toString('utf8');
    this.received.push({
      path: request.url ?? '',
      method: request.method ?? '',
      headers: request.headers,
      body,
      json: parseJson(body),
      arrivedAtMs: Date.now(),
    });
    (this.#replies.shift() ?? this.#usual)(request, response);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }
}

function asReply(reply: number | Reply): Reply {
  return typeof reply === 'number' ? (_request, response) => response.writeHead(reply).end() : reply;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
