import { maskSecrets } from '@logpond/db/alert-rule-secrets';
import type { RuleState } from '@logpond/db/alert-windows';
import type { AlertRuleDocument } from '@logpond/db/rule-change';
import { alertRuleSchema, flattenAlertRule } from '@logpond/schema/alert-rule';
import { alertRulePatchSchema, applyAlertRulePatch } from '@logpond/schema/alert-rule-patch';
import { ApiError } from '@logpond/schema/api-error';
import { z } from 'zod';
import { actorOf } from '../actor.ts';
import type { ApiDeps } from '../api-deps.ts';
import { checkedReplacementSchema, checkedRuleSchema } from '../checked-rule.ts';
import { jsonBody, parseBySchema } from '../request-body.ts';
import { declareRoute } from '../route.ts';
import type { Access, Answer, RouteDeclaration } from '../route.ts';
import { alertHistoryRoutes } from './alerts-history.ts';
import { alertPreviewRoutes } from './alerts-preview.ts';
import { alertTestRoutes } from './alerts-test.ts';

const RULES = '/projects/:projectId/alerts';
const RULE = '/projects/:projectId/alerts/:alertId';

const READER = {
  kind: 'session',
  tenant: { kind: 'project', in: 'path', name: 'projectId', role: 'viewer' },
} as const satisfies Access;
const WRITER = {
  kind: 'session',
  tenant: { kind: 'project', in: 'path', name: 'projectId', role: 'member' },
} as const satisfies Access;

const oneSchema = z.object({ alertRule: alertRuleSchema });

type RuleDeps = Pick<ApiDeps, 'alertRules' | 'ruleStates'>;

/** The alert rules of a project, what became of them, and how to try them. */
export function alertRoutes(deps: ApiDeps): RouteDeclaration[] {
  return [
    listRoute(deps),
    createRoute(deps),
    readRoute(deps),
    patchRoute(deps),
    replaceRoute(deps),
    removeRoute(deps),
    ...alertHistoryRoutes(deps),
    ...alertPreviewRoutes(deps),
    ...alertTestRoutes(deps),
  ];
}

function listRoute({ alertRules, ruleStates }: RuleDeps): RouteDeclaration {
  return declareRoute({
    method: 'GET',
    path: RULES,
    access: READER,
    summary: "A project's alert rules",
    answers: {
      200: { description: 'All of them', schema: z.object({ alertRules: z.array(alertRuleSchema) }) },
    },
    handle: async ({ params }) => {
      const rules = await alertRules.list(params.projectId);
      const states = await ruleStates(
        params.projectId,
        rules.map(({ id }) => id),
      );
      return { status: 200, value: { alertRules: rules.map((rule) => viewRule(rule, states.get(rule.id))) } };
    },
  });
}

function createRoute(deps: RuleDeps): RouteDeclaration {
  return declareRoute({
    method: 'POST',
    path: RULES,
    access: WRITER,
    summary: 'Create an alert rule, in the nested or the flat form',
    body: jsonBody(checkedRuleSchema),
    answers: { 201: { description: 'It counts from now on', schema: oneSchema } },
    handle: async (request) => {
      const { projectId } = request.params;
      const rule = await deps.alertRules.create(actorOf(request), projectId, request.body);
      // Nothing has been counted yet.
      return { status: 201, value: { alertRule: viewRule(rule, undefined) } };
    },
  });
}

function readRoute(deps: RuleDeps): RouteDeclaration {
  return declareRoute({
    method: 'GET',
    path: RULE,
    access: READER,
    summary: 'One alert rule',
    answers: { 200: { description: 'The rule', schema: oneSchema } },
    handle: async ({ params }) => {
      const rule = await deps.alertRules.find(params.projectId, params.alertId);
      if (rule === undefined) throw noSuchRule();
      return answerRule(deps, rule);
    },
  });
}

function patchRoute(deps: RuleDeps): RouteDeclaration {
  return declareRoute({
    method: 'PATCH',
    path: RULE,
    access: WRITER,
    summary:
      'Change some fields of an alert rule, of either form; a secret or a header given as "***" stays as it is',
    body: jsonBody(alertRulePatchSchema),
    answers: { 200: { description: 'It counts like this from now on', schema: oneSchema } },
    handle: async (request) => {
      const { projectId, alertId } = request.params;
      const rule = await deps.alertRules.update(actorOf(request), projectId, alertId, (draft) =>
        parseBySchema(checkedRuleSchema, applyAlertRulePatch(draft, request.body)),
      );
      return answerRule(deps, rule);
    },
  });
}

function replaceRoute(deps: RuleDeps): RouteDeclaration {
  return declareRoute({
    method: 'PUT',
    path: RULE,
    access: WRITER,
    summary:
      'Replace an alert rule, in the nested or the flat form, or as it was read; a secret or a header given as "***" stays as it is',
    body: jsonBody(checkedReplacementSchema),
    answers: { 200: { description: 'It counts like this from now on', schema: oneSchema } },
    handle: async (request) => {
      const { projectId, alertId } = request.params;
      const rule = await deps.alertRules.update(actorOf(request), projectId, alertId, () => request.body);
      return answerRule(deps, rule);
    },
  });
}

function removeRoute({ alertRules }: RuleDeps): RouteDeclaration {
  return declareRoute({
    method: 'DELETE',
    path: RULE,
    access: WRITER,
    summary: 'Delete an alert rule; its history stays',
    answers: { 204: { description: 'It counts nothing any more' } },
    handle: async (request) => {
      const { projectId, alertId } = request.params;
      await alertRules.remove(actorOf(request), projectId, alertId);
      return { status: 204 };
    },
  });
}

async function answerRule({ ruleStates }: RuleDeps, rule: AlertRuleDocument): Promise<Answer> {
  const states = await ruleStates(rule.projectId, [rule.id]);
  return { status: 200, value: { alertRule: viewRule(rule, states.get(rule.id)) } };
}

function noSuchRule(): ApiError {
  return new ApiError('NOT_FOUND', { public: 'no such alert rule' });
}

/**
 * A rule as it is returned: what was given, and the same in the flat form. Of secrets (the values of headers are some)
 * only that they are there leaves: every viewer of the project sees the rule.
 */
function viewRule(rule: AlertRuleDocument, state: RuleState | undefined): Record<string, unknown> {
  return {
    ...rule,
    ...flattenAlertRule(rule),
    notifications: maskSecrets(rule.notifications),
    state: state?.state ?? 'ok',
    lastTriggeredAt: state?.lastTriggeredAt ?? null,
  };
}
