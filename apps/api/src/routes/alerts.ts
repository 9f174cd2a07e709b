import { alertRuleInputSchema, alertRuleSchema, flattenAlertRule } from '@logpond/schema/alert-rule';
import type { AlertRuleDocument } from '@logpond/db/alert-rules';
import { z } from 'zod';
import { actorOf } from '../actor.ts';
import type { ApiDeps } from '../api-deps.ts';
import { jsonBody } from '../request-body.ts';
import { declareRoute } from '../route.ts';
import type { RouteDeclaration } from '../route.ts';

/** The alert rules of a project; a viewer lists them, a member writes them. */
export function alertRoutes({ alertRules }: Pick<ApiDeps, 'alertRules'>): RouteDeclaration[] {
  return [
    declareRoute({
      method: 'GET',
      path: '/projects/:projectId/alerts',
      access: { kind: 'session', tenant: { kind: 'project', in: 'path', name: 'projectId', role: 'viewer' } },
      summary: "A project's alert rules",
      answers: {
        200: { description: 'All of them', schema: z.object({ alertRules: z.array(alertRuleSchema) }) },
      },
      handle: async ({ params }) => {
        const rules = await alertRules.list(params.projectId);
        return { status: 200, value: { alertRules: rules.map(viewRule) } };
      },
    }),
    declareRoute({
      method: 'POST',
      path: '/projects/:projectId/alerts',
      access: { kind: 'session', tenant: { kind: 'project', in: 'path', name: 'projectId', role: 'member' } },
      summary: 'Create an alert rule, in the nested or the flat form',
      body: jsonBody(alertRuleInputSchema),
      answers: {
        201: { description: 'It counts from now on', schema: z.object({ alertRule: alertRuleSchema }) },
      },
      handle: async (request) => {
        const rule = await alertRules.create(actorOf(request), request.params.projectId, request.body);
        return { status: 201, value: { alertRule: viewRule(rule) } };
      },
    }),
  ];
}

/**
 * A rule as it is returned: what was given, and the same in the flat form. A webhook's secret stays here, and
 * of its headers (one may carry a token) only the names leave: every viewer of the project sees the rule.
 */
function viewRule(rule: AlertRuleDocument): Record<string, unknown> {
  const notifications = rule.notifications.map((notification) => {
    if (notification.type === 'email') return notification;
    const { secret: _secret, headers, ...config } = notification.config;
    if (headers === undefined) return { ...notification, config };
    const masked = Object.fromEntries(Object.keys(headers).map((name) => [name, '***']));
    return { ...notification, config: { ...config, headers: masked } };
  });
  return { ...rule, ...flattenAlertRule(rule), notifications, state: 'ok', lastTriggeredAt: null };
}
