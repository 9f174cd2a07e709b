import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebhookSink } from '../../../../tests/support/webhook-sink.ts';
import { makeNotice } from '../notice.test-support.ts';
import { parseNetworks } from '../webhook-egress.ts';
import { postWebhook } from './webhook.ts';
import type { WebhookOptions } from './webhook.ts';

const LOCAL: WebhookOptions = {
  egress: { allowHttp: true, allowedNetworks: parseNetworks('127.0.0.0/8') },
  now: () => 1_700_000_000_000,
};

let sink: WebhookSink;
beforeEach(async () => {
  sink = await WebhookSink.open();
});
afterEach(async () => sink[Symbol.asyncDispose]());

async function post(changes: Partial<WebhookOptions> = {}, url = sink.url): ReturnType<typeof postWebhook> {
  return postWebhook(makeNotice(), { url, headers: {}, secret: undefined }, { ...LOCAL, ...changes });
}

describe('an answer', () => {
  it.each([
    [200, 'sent', '200 OK'],
    [204, 'sent', '204 No Content'],
    [302, 'retry', '302 Found; redirects are not followed'],
    [400, 'failed', '400 Bad Request'],
    [401, 'failed', '401 Unauthorized'],
    [404, 'failed', '404 Not Found'],
    [408, 'retry', '408 Request Timeout'],
    [410, 'failed', '410 Gone'],
    [429, 'retry', '429 Too Many Requests'],
    [500, 'retry', '500 Internal Server Error'],
    [503, 'retry', '503 Service Unavailable'],
  ])('%d is %s', async (code, status, answer) => {
    sink.reply((_request, response) => {
      response.statusMessage = 'of the server';
      response.writeHead(code, { Location: sink.url }).end('secret of the server');
    });
    expect(await post()).toEqual({ status, answer });
    // A redirect is not followed.
    expect(sink.received).toHaveLength(1);
  });

  it('is read up to 64 KB', async () => {
    let isCut = false;
    sink.reply((_request, response) => {
      response.writeHead(200);
      const chunk = Buffer.alloc(16_384);
      const write = (): void => {
        if (!response.destroyed) response.write(chunk, () => setImmediate(write));
      };
      response.on('close', () => {
        isCut = true;
      });
      write();
    });
    expect(await post()).toMatchObject({ status: 'sent' });
    await expect.poll(() => isCut).toBe(true);
  });

  it('that drips is given up after the whole time', async () => {
    sink.reply((_request, response) => {
      response.writeHead(200);
      const timer = setInterval(() => response.write('.'), 20);
      response.on('close', () => clearInterval(timer));
    });
    expect(await post({ totalTimeoutMs: 200 })).toEqual({
      status: 'retry',
      answer: 'no answer within 200 ms',
    });
  });

  it('that never comes is given up', async () => {
    sink.reply(() => {});
    expect(await post({ totalTimeoutMs: 150 })).toEqual({
      status: 'retry',
      answer: 'no answer within 150 ms',
    });
  });
});

describe('a connection', () => {
  it('goes to the address that was checked, under the name that was asked for', async () => {
    let asked = 0;
    const resolve: WebhookOptions['resolve'] = async () => {
      asked += 1;
      return [{ address: '127.0.0.1', family: 4 }];
    };
    const url = `http://hooks.example.com:${sink.port}/x?y=1`;
    expect(await post({ resolve }, url)).toMatchObject({ status: 'sent' });
    expect(asked).toBe(1);
    expect(sink.received[0]?.headers.host).toBe(`hooks.example.com:${sink.port}`);
    expect(sink.received[0]?.path).toBe('/x?y=1');
  });

  it('over TLS says that name to the server, and trusts no certificate of another', async () => {
    let hello = '';
    const server = createServer((socket: Socket) => {
      socket.on('error', () => {});
      socket.once('data', (data) => {
        hello = data.toString('latin1');
        socket.destroy();
      });
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const resolve: WebhookOptions['resolve'] = async () => [{ address: '127.0.0.1', family: 4 }];
    const { port } = server.address() as AddressInfo;
    const outcome = await post({ resolve }, `https://hooks.example.com:${port}/`);
    server.close();
    expect(outcome.status).toBe('retry');
    expect(hello).toContain('hooks.example.com');
  });

  it('is not made to a private address', async () => {
    const egress = { allowHttp: true, allowedNetworks: parseNetworks('') };
    const { status, answer } = await post({ egress }, 'http://127.0.0.1/');
    expect(status).toBe('failed');
    expect(answer).toContain('private, local or reserved');
    expect(sink.connections).toBe(0);
  });

  it('that is not made in time is given up, also when the name server is silent', async () => {
    const resolve: WebhookOptions['resolve'] = async () => new Promise(() => {});
    const outcome = await post({ resolve, connectTimeoutMs: 100 }, 'https://hooks.example.com/');
    expect(outcome).toEqual({ status: 'retry', answer: 'no connection within 100 ms' });
  });

  it('that is refused is tried again later', async () => {
    const { port } = sink;
    await sink[Symbol.asyncDispose]();
    const outcome = await post({}, `http://127.0.0.1:${port}/`);
    sink = await WebhookSink.open();
    expect(outcome).toEqual({ status: 'retry', answer: 'no answer (ECONNREFUSED)' });
  });
});

it('the headers of a rule go along, but none that frames the message or is ours', async () => {
  const headers = {
    Authorization: 'Bearer x',
    Host: 'internal.example.com',
    'Content-Length': '1',
    'Content-Encoding': 'gzip',
    'Transfer-Encoding': 'chunked',
    Connection: 'upgrade',
    'X-Logpond-Signature': 't=1,v1=00',
  };
  const target = { url: sink.url, headers, secret: 'k' };
  expect(await postWebhook(makeNotice(), target, LOCAL)).toMatchObject({ status: 'sent' });
  const [post] = sink.received;
  expect(post?.headers).toMatchObject({
    authorization: 'Bearer x',
    host: `127.0.0.1:${sink.port}`,
    'content-type': 'application/json',
    'x-logpond-delivery': 'job-1',
  });
  expect(post?.headers).not.toHaveProperty('content-encoding');
  expect(post?.headers['x-logpond-signature']).toMatch(/^t=1700000000,v1=[0-9a-f]{64}$/);
  expect(post?.json).toMatchObject({ type: 'alert.firing' });
});
