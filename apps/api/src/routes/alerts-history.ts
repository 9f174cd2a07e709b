import { alertHistoryAnswerSchema, alertHistoryQueryParams } from '@logpond/schema/alert-history';
import type { ApiDeps } from '../api-deps.ts';
import { plainQuery } from '../query-spec.ts';
import { declareRoute } from '../route.ts';
import type { RouteDeclaration } from '../route.ts';

/** When the rules of a project fired, and what became of the notifications. */
export function alertHistoryRoutes({ alertHistory }: Pick<ApiDeps, 'alertHistory'>): RouteDeclaration[] {
  return [
    declareRoute({
      method: 'GET',
      path: '/projects/:projectId/alerts/history',
      access: { kind: 'session', tenant: { kind: 'project', in: 'path', name: 'projectId', role: 'viewer' } },
      summary: 'Firings of the last 400 days with their notifications, newest first; deleted rules included',
      query: plainQuery(alertHistoryQueryParams),
      answers: { 200: { description: 'A page of firings', schema: alertHistoryAnswerSchema } },
      handle: async ({ params, query: { from, to, ...query } }) => ({
        status: 200,
        value: await alertHistory.list(params.projectId, { ...query, fromMs: from, toMs: to }),
      }),
    }),
  ];
}
