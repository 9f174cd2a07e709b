import { ERROR_STATUS, errorSchema } from '@logpond/schema/api-error';
import { z } from 'zod';
import { createDocument } from 'zod-openapi';
import type {
  ZodOpenApiOperationObject,
  ZodOpenApiPathsObject,
  ZodOpenApiResponseObject,
  ZodOpenApiResponsesObject,
} from 'zod-openapi';
import packageJson from '../package.json' with { type: 'json' };
import type { Access, AnswerSpec, RouteDeclaration } from './route.ts';

/** The OpenAPI 3.1 document of the declared routes, as JSON text. */
export function renderOpenApi(routes: readonly RouteDeclaration[]): string {
  const paths: ZodOpenApiPathsObject = {};
  for (const route of routes) {
    const path = `${route.isAtRoot === true ? '' : '/api/v1'}${route.path.replace(/:(\w+)/g, '{$1}')}`;
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: describeOperation(route) };
  }
  const document = createDocument({
    openapi: '3.1.0',
    info: {
      title: 'Logpond',
      version: packageJson.version,
      description: 'Log management: acknowledged on disk, stored exactly once',
    },
    paths,
    components: {
      securitySchemes: {
        apiKey: { type: 'apiKey', in: 'header', name: 'X-API-Key', description: 'lp_…, of one project' },
        session: { type: 'http', scheme: 'bearer', description: 'The token of POST /auth/login' },
      },
    },
  });
  return JSON.stringify(document);
}

function describeOperation(route: RouteDeclaration): ZodOpenApiOperationObject {
  const parameters = [...route.path.matchAll(/:(\w+)/g)].map(([, name = '']) => {
    const pattern = route.paramPatterns?.[name];
    return [name, pattern === undefined ? z.uuid() : z.string().regex(pattern)] as const;
  });
  const tenant = tenantParameter(route.access);
  const query =
    route.query === undefined ? tenant : z.object({ ...tenant?.shape, ...route.query.schema.shape });
  return {
    summary: route.summary,
    security: describeSecurity(route.access),
    ...(route.body === undefined
      ? {}
      : { requestBody: { required: true, content: describeContent(route.body.content) } }),
    requestParams: {
      ...(parameters.length === 0 ? {} : { path: z.object(Object.fromEntries(parameters)) }),
      ...(query === undefined ? {} : { query }),
      ...(route.headers === undefined ? {} : { header: z.object(route.headers.shape) }),
    },
    responses: describeAnswers(route),
  };
}

function tenantParameter(access: Access): z.ZodObject | undefined {
  if (access.kind !== 'apiKeyOrSession' || access.tenant.in === 'path') return undefined;
  return z.object({
    [access.tenant.name]: z.uuid().optional().describe('Needed with a session, not with an API key'),
  });
}

function describeSecurity(access: Access): Record<string, string[]>[] {
  switch (access.kind) {
    case 'public':
      return [];
    case 'session':
      return [{ session: [] }];
    case 'apiKey':
      return [{ apiKey: [] }];
    case 'apiKeyOrSession':
      return [{ apiKey: [] }, { session: [] }];
  }
}

type Content = Record<string, { schema: z.ZodType }>;

function describeContent(content: Readonly<Record<string, z.ZodType>>): Content {
  return Object.fromEntries(Object.entries(content).map(([type, schema]) => [type, { schema }]));
}

function describeAnswers(route: RouteDeclaration): ZodOpenApiResponsesObject {
  const responses: ZodOpenApiResponsesObject = {};
  for (const [status, spec] of Object.entries(route.answers))
    responses[status as '200'] = describeAnswer(spec);
  for (const status of errorStatuses(route)) {
    responses[String(status) as '400'] ??= {
      description: namesOfStatus(status),
      content: { 'application/json': { schema: errorSchema } },
    };
  }
  return responses;
}

function describeAnswer({ description, contentType, schema, headers }: AnswerSpec): ZodOpenApiResponseObject {
  const described = { description, ...(headers === undefined ? {} : { headers }) };
  if (contentType !== undefined) return { ...described, content: { [contentType]: { schema: z.string() } } };
  if (schema === undefined) return described;
  return { ...described, content: { 'application/json': { schema } } };
}

function errorStatuses(route: RouteDeclaration): number[] {
  const needsRight = route.access.kind !== 'public';
  return [
    ...(route.query !== undefined || route.body !== undefined || route.headers !== undefined ? [400] : []),
    ...(needsRight ? [401, 403] : []),
    ...(route.path.includes(':') || route.access.kind === 'apiKeyOrSession' ? [404] : []),
    ...(route.body === undefined ? [] : [409, 413, 415]),
    ...(route.access.kind === 'apiKey' ? [422] : []),
    ...(needsRight || route.body !== undefined ? [429] : []),
    ...(route.isAtRoot === true ? [] : [500, 503]),
  ];
}

function namesOfStatus(status: number): string {
  const codes = Object.entries(ERROR_STATUS).filter(([, of]) => of === status);
  return codes.map(([code]) => code).join(', ');
}
