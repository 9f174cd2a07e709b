import { declareCounter, declareHistogram } from '@logpond/runtime/metrics';
import { ApiError } from '@logpond/schema/api-error';
import type { Context } from 'hono';
import { baseHeadersOf, chooseRequestId } from './answer-headers.ts';
import type { ApiDeps } from './api-deps.ts';
import { authorize, bindTenant, isUuid } from './auth.ts';
import { readBody } from './body.ts';
import type { BodyLease } from './body-memory.ts';
import { readCredentials } from './credentials.ts';
import type { Credentials } from './credentials.ts';
import { logFault, renderError, retryAfterOf, toApiError } from './errors.ts';
import { parseBySchema, parseMediaType } from './request-body.ts';
import type { BodySpec } from './request-body.ts';
import type { Access, Answer, Caller, HeadersSpec, RouteDeclaration, RouteRequest, Tenant } from './route.ts';
import type { RequestEnv } from './request-env.ts';

type AnyRequest = RouteRequest<Access, string, unknown, unknown>;

/** One request under way: what the steps below share. */
type Exchange = {
  route: RouteDeclaration;
  deps: ApiDeps;
  requestId: string;
  header: (name: string) => string | undefined;
  search: URLSearchParams;
  params: Record<string, string>;
  context: Context<RequestEnv>;
};

/** The handler of a declared route; it never throws. */
export function makeHandler(
  route: RouteDeclaration,
  deps: ApiDeps,
): (context: Context<RequestEnv>) => Promise<Response> {
  const baseHeaders = baseHeadersOf(route.access, deps.config.PUBLIC_URL);
  return async (context) => {
    const startedMs = performance.now();
    const header = (name: string): string | undefined => context.req.raw.headers.get(name) ?? undefined;
    const requestId = chooseRequestId(header('x-request-id'));
    let answer: Answer;
    let code: string | undefined;
    try {
      answer = await answerExchange({
        route,
        deps,
        requestId,
        header,
        context,
        search: readSearch(context.req.url),
        params: context.req.param() as Record<string, string>,
      });
    } catch (thrown) {
      const error = toApiError(thrown);
      logFault(deps.log, error, requestId);
      code = error.code;
      answer = answerOf(error, requestId);
    }
    observe(route, deps, {
      requestId,
      status: answer.status,
      code,
      seconds: (performance.now() - startedMs) / 1_000,
    });
    return buildResponse(answer, baseHeaders, requestId, context.req.method === 'HEAD');
  };
}

function readSearch(url: string): URLSearchParams {
  const start = url.indexOf('?');
  return new URLSearchParams(start === -1 ? '' : url.slice(start + 1).split('#', 1)[0]);
}

function answerOf(error: ApiError, requestId: string): Answer {
  const retryAfter = retryAfterOf(error);
  return {
    status: error.statusCode,
    text: renderError(error, requestId),
    ...(retryAfter === undefined ? {} : { headers: { 'Retry-After': retryAfter } }),
  };
}

/** The checks in the order of contract.md §1, then the handler. */
async function answerExchange(exchange: Exchange): Promise<Answer> {
  const { route, deps, header, search, params } = exchange;
  if (!deps.setup.isOpen && route.worksBeforeSetup !== true) await deps.setup.assertOpen();
  const credentials = readCredentials(route.access, header, () => search.get('token'));
  refuseForeignSites(route, credentials, header);
  let caller = await authorize(
    route.access,
    credentials,
    (tenant) => readTenant(tenant, search, params),
    deps,
  );
  refuseForeignParams(route, params);
  route.guard?.(caller as AnyRequest['caller']);
  const lease = deps.bodies.lease(route.access.kind === 'public');
  let isDone = false;
  try {
    const body = route.body === undefined ? undefined : await readDeclaredBody(exchange, route.body, lease);
    caller = await bindBodyTenant(route.access, caller, body, deps);
    const query = route.query?.parse(search, deps.now());
    const headers = route.headers && readHeaders(route.headers, header);
    const answer = await route.handle({
      ...describeRequest(exchange),
      query,
      body,
      headers,
      caller: caller as AnyRequest['caller'],
    });
    isDone = true;
    return answer.value === undefined ? answer : { ...answer, text: serialise(route, answer) };
  } finally {
    // A handler that failed may have left the body in a queue: its buffer is not used again.
    lease.release(isDone);
  }
}

/** The headers that a route declares; others are none of its business. @throws {ApiError} VALIDATION_ERROR. */
function readHeaders(spec: HeadersSpec<unknown>, header: Exchange['header']): unknown {
  const sent = Object.keys(spec.shape).map((name) => [name, header(name)] as const);
  return parseBySchema(spec, Object.fromEntries(sent.filter(([, value]) => value !== undefined)));
}

/** What cannot be the id of anything names nothing; only such a text may become part of a store's key. */
function refuseForeignParams(route: RouteDeclaration, params: Record<string, string>): void {
  for (const [name, value] of Object.entries(params)) {
    const pattern = route.paramPatterns?.[name];
    if (pattern === undefined ? !isUuid(value) : !pattern.test(value)) throw new ApiError('NOT_FOUND');
  }
}

function describeRequest({
  route,
  requestId,
  header,
  params,
  context,
}: Exchange): Omit<AnyRequest, 'query' | 'body' | 'headers' | 'caller'> {
  return {
    requestId,
    host: header('host'),
    params: Object.fromEntries(
      Object.entries(params).map(([name, value]) => [
        name,
        route.paramPatterns?.[name] === undefined ? value.toLowerCase() : value,
      ]),
    ),
    isHead: context.req.method === 'HEAD',
    ip: context.env?.incoming?.socket.remoteAddress,
  };
}

/** A browser sends the session cookie with requests that other sites start; those must not change anything (S35). */
function refuseForeignSites(
  route: RouteDeclaration,
  credentials: Credentials,
  header: Exchange['header'],
): void {
  if (credentials.isFromCookie !== true || route.method === 'GET' || route.access.kind === 'public') return;
  const site = header('sec-fetch-site');
  if (site === undefined || site === 'same-origin' || site === 'none') return;
  throw new ApiError('FORBIDDEN', { public: 'a session cookie is accepted from the own site only' });
}

function readTenant(
  tenant: Tenant,
  search: URLSearchParams,
  params: Record<string, string>,
): string | undefined {
  if (tenant.in === 'path') return params[tenant.name];
  if (tenant.in === 'body') return undefined;
  const values = search.getAll(tenant.name);
  if (values.length <= 1) return values[0] || undefined;
  throw new ApiError('VALIDATION_ERROR', {
    public: `${tenant.name}: expected the parameter once, got it ${values.length} times`,
  });
}

async function bindBodyTenant(access: Access, caller: Caller, body: unknown, deps: ApiDeps): Promise<Caller> {
  if (access.kind !== 'session' || access.tenant?.in !== 'body' || caller.kind !== 'session') return caller;
  const value: unknown =
    typeof body === 'object' && body !== null ? Reflect.get(body, access.tenant.name) : undefined;
  return bindTenant(caller, access.tenant, typeof value === 'string' ? value : undefined, deps);
}

async function readDeclaredBody(
  exchange: Exchange,
  spec: BodySpec<unknown>,
  lease: BodyLease,
): Promise<unknown> {
  const { context, header, deps } = exchange;
  const mediaType = parseMediaType(header('content-type'));
  spec.checkMediaType(mediaType);
  const source = { incoming: context.env?.incoming, stream: () => context.req.raw.body, header };
  const bytes = await readBody(source, spec.bytesMax ?? deps.config.MAX_BODY_BYTES, lease);
  return spec.parse(bytes, mediaType);
}

/** Only what the declaration names leaves (S17); an answer that does not fit it is a bug. */
function serialise(route: RouteDeclaration, answer: Answer): string {
  const schema = route.answers[answer.status]?.schema;
  if (schema === undefined)
    throw new Error(`${route.method} ${route.path} declares no body for ${answer.status}`);
  return JSON.stringify(schema.parse(answer.value));
}

function buildResponse(
  answer: Answer,
  base: Record<string, string>,
  requestId: string,
  isHead: boolean,
): Response {
  const body = answer.stream ?? answer.text ?? null;
  const headers: Record<string, string> = { ...base, 'X-Request-Id': requestId };
  if (answer.text !== undefined) headers['Content-Type'] = 'application/json';
  Object.assign(headers, answer.headers);
  const init = { status: answer.status, headers };
  if (answer.cookies === undefined) return new Response(isHead ? null : body, init);
  const withCookies = new Headers(headers);
  for (const cookie of answer.cookies) withCookies.append('Set-Cookie', cookie);
  return new Response(isHead ? null : body, { ...init, headers: withCookies });
}

type Observation = { requestId: string; status: number; code: string | undefined; seconds: number };

/** One line a request: never the query (it may hold a key), the body or a header. */
function observe(route: RouteDeclaration, deps: ApiDeps, seen: Observation): void {
  const name = `${route.isAtRoot ? '' : '/api/v1'}${route.path}`;
  requestsTotal.inc({ method: route.method, route: name, status: seen.status });
  requestSeconds.observe({ route: name }, seen.seconds);
  const isQuiet = route.quiet === 'always' || (route.quiet === 'onSuccess' && seen.status < 400);
  const level = isQuiet ? 'debug' : 'info';
  if (!deps.log.isLevelEnabled(level)) return;
  const { requestId, status, code } = seen;
  deps.log[level](
    { requestId, method: route.method, route: name, status, code, ms: Math.round(seen.seconds * 1e4) / 10 },
    'request',
  );
}

const requestsTotal = declareCounter('logpond_api_requests_total', {
  help: 'Requests answered, by route and status.',
  labels: ['method', 'route', 'status'],
});
const requestSeconds = declareHistogram('logpond_api_request_seconds', {
  help: 'Time from the first look at a request to its answer; for a stream, to its headers.',
  labels: ['route'],
});
