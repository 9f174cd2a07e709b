import type { Organization } from '@logpond/db/organizations';
import type { Project } from '@logpond/db/projects';
import type { User } from '@logpond/db/accounts';
import type { Role, Scope } from '@logpond/schema/account';
import type { z } from 'zod';
import type { BodySpec } from './request-body.ts';

/** Where a session route finds the organization or project it works in, and the least role that may call it. */
export type Tenant = {
  kind: 'organization' | 'project';
  in: 'path' | 'query' | 'body';
  name: string;
  role: Role;
  /** Without a value the route is not bound to one tenant. Only for lists over all of the caller's own. */
  isOptional?: true;
};

/** Who may call a route. Every route has exactly one policy; the authorisation tests read it. */
export type Access =
  | { kind: 'public' }
  | { kind: 'session'; tenant?: Tenant }
  | { kind: 'apiKey'; scope: Scope }
  | { kind: 'apiKeyOrSession'; scope: Scope; tenant: Tenant; allowsQueryToken?: true };

export type SessionCaller = {
  kind: 'session';
  user: User;
  token: string;
  organization?: Organization;
  project?: Project;
  role?: Role;
};

/** A caller whose right to one project is settled, whichever credential brought it. */
export type ProjectCaller = {
  kind: 'project';
  projectId: string;
  retentionDays: number;
  /** Which credential it was; a session's entries carry their project's id. */
  by: 'apiKey' | 'session';
  keyId?: string;
  userId?: string;
  /** Asks again whether the credential still holds; for answers that stay open. */
  isStillAllowed: () => Promise<boolean>;
};

type CallerOf<A extends Access> = A extends { kind: 'public' }
  ? { kind: 'public' }
  : A extends { kind: 'session' }
    ? SessionCaller
    : ProjectCaller;

export type Caller = { kind: 'public' } | SessionCaller | ProjectCaller;

type ParamNames<Path extends string> = Path extends `${string}:${infer Name}/${infer Rest}`
  ? Name | ParamNames<`/${Rest}`>
  : Path extends `${string}:${infer Name}`
    ? Name
    : never;

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** What a handler is given: everything is checked, and of the headers there is what the route declares. */
export type RouteRequest<A extends Access, Path extends string, Query, Body, Headers = unknown> = {
  requestId: string;
  isHead: boolean;
  params: Record<ParamNames<Path>, string>;
  query: Query;
  body: Body;
  headers: Headers;
  caller: CallerOf<A>;
  /** Address of the peer; absent in process. Proxy headers are not believed. */
  ip: string | undefined;
  /** What the client calls this server, as it was sent. */
  host: string | undefined;
};

/** How a route reads its query parameters; `schema` documents what `parse` accepts. */
export type QuerySpec<Query> = {
  schema: z.ZodObject;
  parse: (params: URLSearchParams, nowMs: number) => Query;
};

/** Request headers that a route understands, by their usual spelling; all texts. The handler gets what comes out. */
export type HeadersSpec<Headers> = z.ZodType<Headers> & { shape: Readonly<Record<string, z.ZodType>> };

/**
 * What a handler answers: a `value` goes through the declared schema of its status, so that nothing
 * undeclared leaves; `text` is JSON rendered already; `stream` is sent as it comes.
 */
export type Answer = {
  status: number;
  value?: unknown;
  text?: string;
  stream?: ReadableStream<Uint8Array>;
  headers?: Readonly<Record<string, string>>;
  cookies?: readonly string[];
};

export type AnswerSpec = {
  description: string;
  schema?: z.ZodType;
  contentType?: string;
  /** Headers of this answer that are the route's own. */
  headers?: z.ZodObject;
};

export type RouteDeclaration<
  A extends Access = Access,
  Path extends string = string,
  Query = unknown,
  Body = unknown,
  Headers = unknown,
> = {
  method: Method;
  /** With `:name` for parameters, UUIDs unless `paramPatterns` names them; below /api/v1 unless `isAtRoot`. */
  path: Path;
  /** What a parameter that is no UUID looks like; it is passed on as it was sent. */
  paramPatterns?: Readonly<Record<string, RegExp>>;
  isAtRoot?: true;
  /** What is logged at debug only: all of a health check, the successes of the hot path. */
  quiet?: 'always' | 'onSuccess';
  /** Answers before the first account exists. */
  worksBeforeSetup?: true;
  access: A;
  summary: string;
  /** Refuses a caller before the body is read. @throws {ApiError} RATE_LIMITED or BACKPRESSURE. */
  guard?(caller: CallerOf<A>): void;
  query?: QuerySpec<Query>;
  body?: BodySpec<Body>;
  headers?: HeadersSpec<Headers>;
  answers: Readonly<Record<number, AnswerSpec>>;
  // A method, not a property: a list of routes holds handlers of different requests.
  handle(request: RouteRequest<A, Path, Query, Body, Headers>): Answer | Promise<Answer>;
};

/** Declares a route; the types of the request follow from the declaration. */
export function declareRoute<
  const A extends Access,
  const Path extends string,
  Query = undefined,
  Body = undefined,
  Headers = undefined,
>(route: RouteDeclaration<A, Path, Query, Body, Headers>): RouteDeclaration {
  return route as unknown as RouteDeclaration;
}

const ACCESS_KINDS: ReadonlySet<string> = new Set(['public', 'session', 'apiKey', 'apiKeyOrSession']);

/**
 * Refuses a table in which a route has no policy, no answer, or a twin.
 *
 * @throws {Error} naming the route; the process must not start.
 */
export function assertRoutes(routes: readonly RouteDeclaration[]): void {
  const seen = new Set<string>();
  for (const route of routes) {
    const name = `${route.method} ${route.isAtRoot ? '' : '/api/v1'}${route.path}`;
    const access = route.access as Access | undefined;
    if (access === undefined || !ACCESS_KINDS.has(access.kind)) {
      throw new Error(
        `route ${name} declares no access policy; expected one of ${[...ACCESS_KINDS].join(', ')}`,
      );
    }
    const tenant = 'tenant' in access ? access.tenant : undefined;
    if (tenant?.in === 'path' && !route.path.includes(`:${tenant.name}`)) {
      throw new Error(
        `route ${name} takes its ${tenant.kind} from ":${tenant.name}", which its path does not have`,
      );
    }
    if (Object.keys(route.answers).length === 0) throw new Error(`route ${name} declares no answer`);
    if (seen.has(name)) throw new Error(`route ${name} is declared twice`);
    seen.add(name);
  }
}
