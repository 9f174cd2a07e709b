import { readProjectStats } from '@logpond/db/project-stats';
import { projectStatsSchema } from '@logpond/schema/project-stats';
import type { ApiDeps } from '../api-deps.ts';
import { declareRoute } from '../route.ts';
import type { RouteDeclaration } from '../route.ts';

/** How much a project holds, and how much of it still waits to be stored. */
export function projectStatsRoutes({
  clickhouse,
  stream,
  now,
}: Pick<ApiDeps, 'clickhouse' | 'stream' | 'now'>): RouteDeclaration[] {
  return [
    declareRoute({
      method: 'GET',
      path: '/projects/:id/stats',
      access: {
        kind: 'apiKeyOrSession',
        scope: 'query',
        tenant: { kind: 'project', in: 'path', name: 'id', role: 'viewer' },
      },
      summary: 'How many log entries a project holds, and how many wait to be stored',
      answers: { 200: { description: 'Counts', schema: projectStatsSchema } },
      handle: async ({ caller }) => {
        const [stats, { entries, seconds }] = await Promise.all([
          readProjectStats(clickhouse, caller, now()),
          stream.readBacklog(caller.projectId),
        ]);
        return { status: 200, value: { ...stats, backlog: { entries, seconds } } };
      },
    }),
  ];
}
