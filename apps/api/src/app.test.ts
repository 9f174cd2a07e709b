import { createLog } from '@logpond/runtime/log';
import { ApiError } from '@logpond/schema/api-error';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { ApiDeps } from './api-deps.ts';
import { buildApp } from './app.ts';
import { BodyMemory } from './body-memory.ts';
import { renderOpenApi } from './openapi.ts';
import { plainQuery } from './query-spec.ts';
import { jsonBody } from './request-body.ts';
import { declareRoute } from './route.ts';
import type { RouteDeclaration } from './route.ts';

/** What public routes need of the process; the stores are the contract tests' business. */
function makeDeps(config: Partial<ApiDeps['config']> = {}): ApiDeps {
  return {
    setup: { isOpen: true },
    bodies: new BodyMemory(),
    config: { BASE_PATH: '', MAX_BODY_BYTES: 1_000_000, ...config },
    log: createLog('test', 'silent'),
    now: Date.now,
  } as unknown as ApiDeps;
}

const PUBLIC = { kind: 'public' } as const;
const echo = declareRoute({
  method: 'POST',
  path: '/echo',
  access: PUBLIC,
  summary: 'Echo',
  body: jsonBody(z.strictObject({ name: z.string().max(5) })),
  answers: { 200: { description: 'ok', schema: z.object({ name: z.string() }) } },
  handle: ({ body }) => ({ status: 200, value: { ...body, passwordHash: 'never' } }),
});
const item = declareRoute({
  method: 'GET',
  path: '/items/:id',
  access: PUBLIC,
  summary: 'One',
  query: plainQuery(z.object({ page: z.coerce.number().int().optional() })),
  answers: { 200: { description: 'ok', schema: z.object({ id: z.string(), page: z.number().optional() }) } },
  handle: ({ params, query }) => ({ status: 200, value: { id: params.id, page: query.page } }),
});
const broken = declareRoute({
  method: 'GET',
  path: '/items/broken',
  access: PUBLIC,
  summary: 'Broken',
  answers: { 200: { description: 'ok' } },
  handle: () => {
    throw new TypeError('secret of the house');
  },
});
const routes = [item, echo, broken];
const ID = '0199a1b2-0000-7000-8000-000000000001';

async function ask(
  path: string,
  init: RequestInit = {},
  config: Partial<ApiDeps['config']> = {},
): Promise<Response> {
  return buildApp(routes, makeDeps(config)).request(path, init);
}

function post(body: string | Buffer, type = 'application/json'): RequestInit {
  return { method: 'POST', body, headers: { 'content-type': type } };
}

type ErrorBody = {
  error: string;
  code: string;
  statusCode: number;
  details?: { path: string }[];
  requestId: string;
};

async function expectError(response: Response, status: number, code: string): Promise<ErrorBody> {
  const body = (await response.json()) as ErrorBody;
  expect([response.status, body.code, body.statusCode]).toEqual([status, code, status]);
  expect(body.requestId).toBe(response.headers.get('x-request-id'));
  expect(body.error).not.toBe('');
  return body;
}

describe('a table of routes', () => {
  it('is refused at start when a route has no policy, an unknown one, or no answer, or is there twice', () => {
    const bare = { ...echo, access: undefined } as unknown as RouteDeclaration;
    const unknown = { ...echo, access: { kind: 'everybody' } } as unknown as RouteDeclaration;
    expect(() => buildApp([bare], makeDeps())).toThrow(/POST \/api\/v1\/echo declares no access policy/);
    expect(() => buildApp([unknown], makeDeps())).toThrow(/no access policy/);
    expect(() => buildApp([{ ...echo, answers: {} }], makeDeps())).toThrow(/no answer/);
    expect(() => buildApp([echo, echo], makeDeps())).toThrow(/twice/);
    const lost = {
      ...echo,
      access: { kind: 'session', tenant: { kind: 'project', in: 'path', name: 'id', role: 'viewer' } },
    };
    expect(() => buildApp([lost as RouteDeclaration], makeDeps())).toThrow(/":id"/);
  });
});

describe('contract §1 everywhere', () => {
  it('404 in the error shape on an unknown path, a path parameter that is no UUID included', async () => {
    await expectError(await ask('/api/v1/nothing'), 404, 'NOT_FOUND');
    await expectError(await ask('/'), 404, 'NOT_FOUND');
    await expectError(await ask('/api/v1/items/%2e%2e'), 404, 'NOT_FOUND');
    const other = await expectError(await ask('/api/v1/items/17'), 404, 'NOT_FOUND');
    expect(other.error).not.toContain('17');
  });

  it('405 with Allow on a known path with another method, HEAD and OPTIONS answered', async () => {
    const response = await ask(`/api/v1/items/${ID}`, { method: 'PATCH' });
    expect(response.headers.get('allow')).toBe('GET, HEAD, OPTIONS');
    await expectError(response, 405, 'METHOD_NOT_ALLOWED');
    const options = await ask('/api/v1/echo', { method: 'OPTIONS' });
    expect([options.status, options.headers.get('allow')]).toEqual([204, 'POST, OPTIONS']);
    expect(options.headers.get('access-control-allow-origin')).toBeNull();
    const head = await ask(`/api/v1/items/${ID}`, { method: 'HEAD' });
    expect([head.status, await head.text()]).toEqual([200, '']);
  });

  it('a path without parameters wins over one with, whatever the order of declaration', async () => {
    const body = await expectError(await ask('/api/v1/items/broken'), 500, 'INTERNAL_ERROR');
    expect(body.error).not.toContain('secret');
  });

  it('a 500 shows a request id and nothing of the cause', async () => {
    const response = await ask('/api/v1/items/broken');
    expect(await response.text()).not.toContain('secret');
  });

  it('only declared fields leave', async () => {
    const response = await ask('/api/v1/echo', post('{"name":"ann"}'));
    expect(await response.json()).toEqual({ name: 'ann' });
    expect(response.headers.get('content-type')).toBe('application/json');
    expect(response.headers.get('cache-control')).toBe('no-store');
    expect(response.headers.get('x-content-type-options')).toBe('nosniff');
  });

  it('a management body: 415 before 413 before 400, unknown keys refused', async () => {
    const large = 'x'.repeat(300_000);
    await expectError(
      await ask('/api/v1/echo', post(large, 'application/x-www-form-urlencoded')),
      415,
      'UNSUPPORTED_MEDIA_TYPE',
    );
    await expectError(
      await ask('/api/v1/echo', { method: 'POST', body: Buffer.from('{}') }),
      415,
      'UNSUPPORTED_MEDIA_TYPE',
    );
    await expectError(
      await ask('/api/v1/echo', post('{}', 'application/json; charset=latin1')),
      415,
      'UNSUPPORTED_MEDIA_TYPE',
    );
    await expectError(await ask('/api/v1/echo', post(large)), 413, 'PAYLOAD_TOO_LARGE');
    await expectError(await ask('/api/v1/echo', post('{"name":"a","x":1}')), 400, 'VALIDATION_ERROR');
    await expectError(
      await ask('/api/v1/echo', post('{"__proto__":{"a":1},"name":"a"}')),
      400,
      'VALIDATION_ERROR',
    );
    const long = await expectError(
      await ask('/api/v1/echo', post('{"name":"too long"}')),
      400,
      'VALIDATION_ERROR',
    );
    expect(long.details?.[0]?.path).toBe('name');
    expect(
      (await ask('/api/v1/echo', post('\uFEFF{"name":"ann"}', 'Application/JSON; charset="UTF-8"'))).status,
    ).toBe(200);
  });

  it('INVALID_JSON says in words where the text stops being JSON', async () => {
    const cut = await expectError(await ask('/api/v1/echo', post('{"name":')), 400, 'INVALID_JSON');
    expect(cut.error).toContain('ends too early, after 8 characters');
    const bad = await expectError(await ask('/api/v1/echo', post('{"name" 1}')), 400, 'INVALID_JSON');
    expect(bad.error).toContain('position 8');
    await expectError(await ask('/api/v1/echo', post('')), 400, 'INVALID_JSON');
    const deep = '['.repeat(100_000) + ']'.repeat(100_000);
    await expectError(await ask('/api/v1/echo', post(deep)), 400, 'VALIDATION_ERROR');
  });

  it('a query parameter that may come once is refused when repeated, unknown ones are ignored', async () => {
    expect(await (await ask(`/api/v1/items/${ID}?page=2&x=1&x=2`)).json()).toEqual({ id: ID, page: 2 });
    await expectError(await ask(`/api/v1/items/${ID}?page=2&page=3`), 400, 'VALIDATION_ERROR');
    await expectError(await ask(`/api/v1/items/${ID}?page=zwei`), 400, 'VALIDATION_ERROR');
  });

  it("keeps a caller's harmless request id and replaces any other", async () => {
    const sent = async (id: string): Promise<string | null> =>
      (await ask('/api/v1/x', { headers: { 'x-request-id': id } })).headers.get('x-request-id');
    expect(await sent('build-7.1_a')).toBe('build-7.1_a');
    for (const id of ['short', 'with space in it', '{"json":"inject"}', 'x'.repeat(65)])
      expect(await sent(id)).not.toBe(id);
  });

  it('with BASE_PATH every route answers under the prefix, and without for proxies that cut it', async () => {
    const config = { BASE_PATH: '/proj' };
    expect((await ask(`/proj/api/v1/items/${ID}`, {}, config)).status).toBe(200);
    expect((await ask(`/api/v1/items/${ID}`, {}, config)).status).toBe(200);
    expect((await ask(`/proj/api/v1/items/${ID}`, { method: 'PUT' }, config)).status).toBe(405);
    expect((await ask(`/other/api/v1/items/${ID}`, {}, config)).status).toBe(404);
  });

  it('an ApiError of a handler is sent as it is, with Retry-After where it has one', async () => {
    const busy = declareRoute({
      method: 'GET',
      path: '/busy',
      access: PUBLIC,
      summary: 'Busy',
      answers: { 204: { description: 'ok' } },
      handle: () => {
        throw new ApiError('RATE_LIMITED', { retryAfterS: 3 });
      },
    });
    const response = await buildApp([busy], makeDeps()).request('/api/v1/busy');
    expect(response.headers.get('retry-after')).toBe('3');
    await expectError(response, 429, 'RATE_LIMITED');
  });
});

describe('renderOpenApi', () => {
  it('lists each route with its parameters, bodies, answers and who may call it', () => {
    const document = JSON.parse(renderOpenApi(routes)) as {
      openapi: string;
      paths: Record<
        string,
        Record<
          string,
          { parameters?: { name: string; in: string }[]; responses: object; requestBody?: object }
        >
      >;
    };
    expect(document.openapi).toBe('3.1.0');
    const get = document.paths['/api/v1/items/{id}']?.['get'];
    expect(get?.parameters?.map((parameter) => [parameter.name, parameter.in])).toEqual([
      ['id', 'path'],
      ['page', 'query'],
    ]);
    expect(Object.keys(document.paths['/api/v1/echo']?.['post']?.responses ?? {})).toContain('415');
    expect(document.paths['/api/v1/echo']?.['post']?.requestBody).toBeDefined();
  });
});
