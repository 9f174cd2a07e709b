import { ApiError } from '@logpond/schema/api-error';
import { apiKeyCreatedSchema, apiKeyInputSchema, apiKeySchema } from '@logpond/schema/account';
import { z } from 'zod';
import { actorOf } from '../actor.ts';
import type { ApiDeps } from '../api-deps.ts';
import { jsonBody } from '../request-body.ts';
import { declareRoute } from '../route.ts';
import type { RouteDeclaration } from '../route.ts';

const ADMIN = {
  kind: 'session',
  tenant: { kind: 'project', in: 'path', name: 'id', role: 'admin' },
} as const;

/** The API keys of a project. The secret is in the answer of its creation and nowhere else. */
export function apiKeyRoutes({ apiKeys }: Pick<ApiDeps, 'apiKeys'>): RouteDeclaration[] {
  return [
    declareRoute({
      method: 'GET',
      path: '/projects/:id/api-keys',
      access: ADMIN,
      summary: "A project's API keys, without their secrets",
      answers: { 200: { description: 'All of them', schema: z.object({ apiKeys: z.array(apiKeySchema) }) } },
      handle: async ({ params }) => ({ status: 200, value: { apiKeys: await apiKeys.list(params.id) } }),
    }),
    declareRoute({
      method: 'POST',
      path: '/projects/:id/api-keys',
      access: ADMIN,
      summary: 'Create an API key; its secret is shown this once',
      body: jsonBody(apiKeyInputSchema),
      answers: { 201: { description: 'The key with its secret', schema: apiKeyCreatedSchema } },
      handle: async (request) => ({
        status: 201,
        value: await apiKeys.create(actorOf(request), request.params.id, request.body),
      }),
    }),
    declareRoute({
      method: 'DELETE',
      path: '/projects/:id/api-keys/:keyId',
      access: ADMIN,
      summary: 'Revoke an API key; it is refused everywhere within 5 s, open streams included',
      answers: { 204: { description: 'It is revoked' } },
      handle: async (request) => {
        const { id, keyId } = request.params;
        if (await apiKeys.revoke(actorOf(request), id, keyId)) return { status: 204 };
        throw new ApiError('NOT_FOUND', { public: 'no such API key' });
      },
    }),
  ];
}
