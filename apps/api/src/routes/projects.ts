import { projectInputSchema, projectSchema } from '@logpond/schema/account';
import { z } from 'zod';
import { actorOf } from '../actor.ts';
import type { ApiDeps } from '../api-deps.ts';
import { plainQuery } from '../query-spec.ts';
import { jsonBody } from '../request-body.ts';
import { declareRoute } from '../route.ts';
import type { RouteDeclaration } from '../route.ts';

const oneSchema = z.object({ project: projectSchema });

type ProjectDeps = Pick<ApiDeps, 'organizations' | 'projects'>;

/** Projects, the units that hold log entries. */
export function projectRoutes(deps: ProjectDeps): RouteDeclaration[] {
  const { projects } = deps;
  return [
    listProjects(deps),
    declareRoute({
      method: 'POST',
      path: '/projects',
      access: {
        kind: 'session',
        tenant: { kind: 'organization', in: 'body', name: 'organizationId', role: 'admin' },
      },
      summary: 'Create a project in an organization',
      body: jsonBody(projectInputSchema),
      answers: { 201: { description: 'It exists', schema: oneSchema } },
      handle: async (request) => ({
        status: 201,
        value: {
          project: await projects.create(actorOf(request), {
            ...request.body,
            // The one whose role was checked, in its own spelling; the body may write the id in capitals.
            organizationId: request.caller.organization?.id ?? request.body.organizationId,
          }),
        },
      }),
    }),
    declareRoute({
      method: 'GET',
      path: '/projects/:id',
      access: { kind: 'session', tenant: { kind: 'project', in: 'path', name: 'id', role: 'viewer' } },
      summary: 'One project',
      answers: { 200: { description: 'The project', schema: oneSchema } },
      handle: ({ caller }) => ({ status: 200, value: { project: caller.project } }),
    }),
  ];
}

function listProjects({ organizations, projects }: ProjectDeps): RouteDeclaration {
  return declareRoute({
    method: 'GET',
    path: '/projects',
    access: {
      kind: 'session',
      tenant: {
        kind: 'organization',
        in: 'query',
        name: 'organizationId',
        role: 'viewer',
        isOptional: true,
      },
    },
    summary: 'The projects of an organization, or of all that the caller is in',
    query: plainQuery(z.object({ organizationId: z.uuid().optional() })),
    answers: {
      200: { description: 'All of them', schema: z.object({ projects: z.array(projectSchema) }) },
    },
    handle: async ({ caller }) => {
      const scopes = caller.organization
        ? [caller.organization]
        : await organizations.listForUser(caller.user.id);
      const lists = await Promise.all(scopes.map(async ({ id }) => projects.listByOrganization(id)));
      return { status: 200, value: { projects: lists.flat() } };
    },
  });
}
