import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gunzipSync } from 'node:zlib';
import type { Connection } from './config.ts';

export type Seen = { method: string; url: URL; headers: IncomingMessage['headers']; body: string };
export type Respond = (seen: Seen, response: ServerResponse) => void;

/** A real HTTP server at the network boundary of the command: records every request and lets the test answer. */
export async function startFakeApi(
  respond: Respond,
): Promise<{ connection: Connection; seen: Seen[] } & AsyncDisposable> {
  const seen: Seen[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const bytes = Buffer.concat(chunks);
      const body = (request.headers['content-encoding'] === 'gzip' ? gunzipSync(bytes) : bytes).toString();
      const url = new URL(request.url ?? '/', 'http://localhost');
      const one = { method: request.method ?? '', url, headers: request.headers, body };
      seen.push(one);
      respond(one, response);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    connection: { baseUrl: `http://127.0.0.1:${port}/api/v1`, apiKey: 'lp_test' },
    seen,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export function answerJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
}
