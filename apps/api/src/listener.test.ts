import { once } from 'node:events';
import { connect } from 'node:net';
import { createLog } from '@logpond/runtime/log';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import type { ApiDeps } from './api-deps.ts';
import { buildApp } from './app.ts';
import { BodyMemory } from './body-memory.ts';
import { Listener } from './listener.ts';
import type { BodySpec } from './request-body.ts';
import { declareRoute } from './route.ts';

const anyBody: BodySpec<number> = {
  content: { 'application/json': z.unknown() },
  bytesMax: undefined,
  checkMediaType: () => {},
  parse: (bytes) => bytes.length,
};
const seen: number[] = [];
const count = declareRoute({
  method: 'POST',
  path: '/count',
  access: { kind: 'public' },
  summary: 'Count',
  body: anyBody,
  answers: { 200: { description: 'ok', schema: z.object({ bytes: z.number() }) } },
  handle: ({ body }) => {
    seen.push(body);
    return { status: 200, value: { bytes: body } };
  },
});
const bodies = new BodyMemory();
const deps = {
  setup: { isOpen: true },
  bodies,
  config: { BASE_PATH: '', MAX_BODY_BYTES: 3_000_000 },
  log: createLog('test', 'silent'),
  now: Date.now,
} as unknown as ApiDeps;

let listener: Listener;
beforeEach(async () => {
  seen.length = 0;
  listener = await Listener.open(buildApp([count], deps), 0, '127.0.0.1');
});
afterEach(async () => listener.close());

function url(): string {
  return `http://127.0.0.1:${listener.port}/api/v1/count`;
}

/** Writes raw bytes and returns everything that comes back until the server closes. */
async function talk(text: string, end = true): Promise<string> {
  const socket = connect(listener.port, '127.0.0.1');
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  socket.on('error', () => {});
  socket.write(text);
  if (end) socket.end();
  await once(socket, 'close');
  return Buffer.concat(chunks).toString();
}

describe('Listener', () => {
  it('reads bodies of any length from the socket, announced or chunked', async () => {
    for (const bytes of [0, 1, 70_000, 900_000, 2_900_000]) {
      const body = Buffer.alloc(bytes, 'x');
      expect(await (await fetch(url(), { method: 'POST', body })).json()).toEqual({ bytes });
      const stream = new Blob([body]).stream();
      const chunked = await fetch(url(), { method: 'POST', body: stream, duplex: 'half' } as RequestInit);
      expect(await chunked.json()).toEqual({ bytes });
    }
  });

  it('answers 413 without reading what is announced as too large, and to a chunked body on the way', async () => {
    const head = 'POST /api/v1/count HTTP/1.1\r\nHost: a\r\n';
    expect(await talk(`${head}Content-Length: 99999999\r\nConnection: close\r\n\r\nabc`, false)).toMatch(
      /^HTTP\/1.1 413 [^]*PAYLOAD_TOO_LARGE/,
    );
    const chunk = `${(1_000_000).toString(16)}\r\n${'x'.repeat(1_000_000)}\r\n`;
    expect(
      await talk(`${head}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n${chunk.repeat(4)}`, false),
    ).toMatch(/^HTTP\/1.1 413/);
  });

  it('survives clients that leave in the middle of a body or lie about its length, and keeps no memory of them', async () => {
    await talk('POST /api/v1/count HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\nabc');
    const gone = connect(listener.port, '127.0.0.1');
    gone.write('POST /api/v1/count HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\nabc', () =>
      gone.destroy(),
    );
    await once(gone, 'close');
    await talk('POST /api/v1/count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nabc');
    expect(await (await fetch(url(), { method: 'POST', body: 'ok' })).json()).toEqual({ bytes: 2 });
    expect(seen).toEqual([2]);
    const whole = bodies.lease();
    await vi.waitFor(() => {
      whole.reserve(256 * 1024 * 1024);
    });
    whole.release(false);
  });

  it('answers what is not HTTP, too large headers and a bad target in the error shape', async () => {
    for (const text of [
      'NONSENSE\r\n\r\n',
      `GET / HTTP/1.1\r\nHost: a\r\nX-Long: ${'x'.repeat(20_000)}\r\n\r\n`,
      'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      'GET / HTTP/1.1\r\nConnection: close\r\n\r\n',
      'GET / HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n',
      'GET \\..\\x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n',
    ]) {
      const answer = await talk(text, false);
      expect(answer).toMatch(/^HTTP\/1\.1 400 [^]*"code":"VALIDATION_ERROR","statusCode":400/);
      expect(answer.toLowerCase()).toContain('x-request-id:');
    }
  });

  it('answers TRACE with 405 or 404 and echoes nothing', async () => {
    const answer = await talk(
      'TRACE /api/v1/count HTTP/1.1\r\nHost: a\r\nX-Secret: s\r\nConnection: close\r\n\r\n',
      false,
    );
    expect(answer).toMatch(/^HTTP\/1.1 405/);
    expect(answer).not.toContain('X-Secret');
  });

  it('an expectation that nobody knows changes nothing', async () => {
    const head = 'POST /api/v1/count HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\nConnection: close\r\n';
    expect(await talk(`${head}Content-Length: 3\r\n\r\nabc`, false)).toMatch(/^HTTP\/1.1 200 [^]*"bytes":3/);
  });

  it('two different lengths are refused', async () => {
    const answer = await talk(
      'POST /api/v1/count HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc',
      false,
    );
    expect(answer).toMatch(/^HTTP\/1.1 400/);
  });
});
