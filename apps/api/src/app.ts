import { ApiError } from '@logpond/schema/api-error';
import { Hono } from 'hono';
import type { Context } from 'hono';
import { baseHeadersOf, chooseRequestId, isOpenToOrigins, preflightHeaders } from './answer-headers.ts';
import type { ApiDeps } from './api-deps.ts';
import { logFault, renderError, toApiError } from './errors.ts';
import type { RequestEnv } from './request-env.ts';
import { assertRoutes } from './route.ts';
import type { RouteDeclaration } from './route.ts';
import { listRoutes } from './route-table.ts';
import { makeHandler } from './serve-route.ts';

export type ApiApp = Hono<RequestEnv>;

type RouteHandler = ReturnType<typeof makeHandler>;

/** The whole HTTP interface, for `serve` and for tests in process. */
export function createApp(deps: ApiDeps): ApiApp {
  return buildApp(listRoutes(deps), deps);
}

/**
 * Builds the router out of declarations. With BASE_PATH every route answers under it and without it, since
 * some proxies cut the prefix off.
 *
 * @throws {Error} for a route without a policy, or declared twice.
 */
export function buildApp(routes: readonly RouteDeclaration[], deps: ApiDeps): ApiApp {
  assertRoutes(routes);
  const app: ApiApp = new Hono<RequestEnv>();
  const prefixes = deps.config.BASE_PATH === '' ? [''] : [deps.config.BASE_PATH, ''];
  // By path, whatever its parameters are called.
  const known = new Map<string, { path: string; route: RouteDeclaration; handler: RouteHandler }[]>();
  for (const route of inMatchingOrder(routes)) {
    const handler = makeHandler(route, deps);
    for (const prefix of prefixes) {
      const path = `${prefix}${route.isAtRoot === true ? '' : '/api/v1'}${route.path}`;
      const shape = path.replace(/:\w+/g, ':');
      known.set(shape, [...(known.get(shape) ?? []), { path, route, handler }]);
    }
  }
  for (const siblings of known.values()) {
    for (const { path, route, handler } of siblings) app.on(route.method, path, handler);
    // What no method above took: a known path with another method, or OPTIONS. Before the paths that follow, so that
    // DELETE /alerts/history is never taken for the deletion of a rule.
    const fallback = makeMethodFallback(
      siblings.map(({ route }) => route),
      deps,
    );
    if (siblings[0] !== undefined) app.all(siblings[0].path, fallback);
  }
  app.notFound((context) =>
    refuse(context, deps, new ApiError('NOT_FOUND', { public: describeMiss(context) })),
  );
  app.onError((error, context) => refuse(context, deps, toApiError(error)));
  return app;
}

/** Paths without parameters come first, so that /logs/stream is never taken for the id of an entry. */
function inMatchingOrder(routes: readonly RouteDeclaration[]): RouteDeclaration[] {
  const countParameters = (route: RouteDeclaration): number => route.path.split(':').length;
  return routes.toSorted((a, b) => countParameters(a) - countParameters(b));
}

function describeMiss(context: Context<RequestEnv>): string {
  return `no such route: ${context.req.method} ${context.req.path.slice(0, 80)}`;
}

function makeMethodFallback(
  siblings: readonly RouteDeclaration[],
  deps: ApiDeps,
): (context: Context<RequestEnv>) => Response {
  const methods = siblings.flatMap((route) => (route.method === 'GET' ? ['GET', 'HEAD'] : [route.method]));
  const allow = [...methods, 'OPTIONS'].join(', ');
  const access = siblings.find((route) => isOpenToOrigins(route.access))?.access;
  const preflight = isOpenToOrigins(access) ? preflightHeaders(allow) : {};
  const base = baseHeadersOf(access, deps.config.PUBLIC_URL);
  return (context) => {
    if (context.req.method === 'OPTIONS') {
      const requestId = chooseRequestId(context.req.header('x-request-id'));
      return new Response(null, {
        status: 204,
        headers: { ...base, ...preflight, Allow: allow, 'X-Request-Id': requestId },
      });
    }
    const error = new ApiError('METHOD_NOT_ALLOWED', {
      public: `expected ${allow}, got ${context.req.method.slice(0, 80)}`,
    });
    return refuse(context, deps, error, { ...base, Allow: allow });
  };
}

function refuse(
  context: Context<RequestEnv>,
  deps: ApiDeps,
  error: ApiError,
  headers: Record<string, string> = baseHeadersOf(undefined, deps.config.PUBLIC_URL),
): Response {
  const requestId = chooseRequestId(context.req.header('x-request-id'));
  logFault(deps.log, error, requestId);
  const body = context.req.method === 'HEAD' ? null : renderError(error, requestId);
  return new Response(body, {
    status: error.statusCode,
    headers: { ...headers, 'Content-Type': 'application/json', 'X-Request-Id': requestId },
  });
}
