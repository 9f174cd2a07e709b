import { organizationInputSchema, organizationSchema } from '@logpond/schema/account';
import { z } from 'zod';
import { actorOf } from '../actor.ts';
import type { ApiDeps } from '../api-deps.ts';
import { jsonBody } from '../request-body.ts';
import { declareRoute } from '../route.ts';
import type { RouteDeclaration } from '../route.ts';

const oneSchema = z.object({ organization: organizationSchema });

/** Organizations: whoever creates one owns it; nobody sees one without being in it. */
export function organizationRoutes({ organizations }: Pick<ApiDeps, 'organizations'>): RouteDeclaration[] {
  return [
    declareRoute({
      method: 'GET',
      path: '/organizations',
      access: { kind: 'session' },
      summary: "The caller's organizations with the role in each",
      answers: {
        200: { description: 'All of them', schema: z.object({ organizations: z.array(organizationSchema) }) },
      },
      handle: async ({ caller }) => ({
        status: 200,
        value: { organizations: await organizations.listForUser(caller.user.id) },
      }),
    }),
    declareRoute({
      method: 'POST',
      path: '/organizations',
      access: { kind: 'session' },
      summary: 'Create an organization; the caller becomes its owner',
      body: jsonBody(organizationInputSchema),
      answers: { 201: { description: 'It exists', schema: oneSchema } },
      handle: async (request) => {
        const organization = await organizations.create(
          actorOf(request),
          request.caller.user.id,
          request.body,
        );
        return { status: 201, value: { organization: { ...organization, role: 'owner' } } };
      },
    }),
    declareRoute({
      method: 'GET',
      path: '/organizations/:id',
      access: { kind: 'session', tenant: { kind: 'organization', in: 'path', name: 'id', role: 'viewer' } },
      summary: 'One organization',
      answers: { 200: { description: 'The organization', schema: oneSchema } },
      handle: ({ caller }) => ({
        status: 200,
        value: { organization: { ...caller.organization, role: caller.role } },
      }),
    }),
  ];
}
