import { readWindowSpec } from '@logpond/alerting/window';
import type { AlertPreviewInput } from '@logpond/schema/alert-preview';
import { alertPreviewAnswerSchema } from '@logpond/schema/alert-preview';
import { refuseParameter } from '@logpond/schema/query-parameter';
import type { ApiDeps } from '../api-deps.ts';
import { checkedPreviewSchema } from '../checked-rule.ts';
import { leadSeconds, previewRule } from '../preview-rule.ts';
import type { PreviewRange } from '../preview-rule.ts';
import { jsonBody } from '../request-body.ts';
import { declareRoute } from '../route.ts';
import type { RouteDeclaration } from '../route.ts';
import { shedCostly } from '../shed-queries.ts';

const DAY_MS = 86_400_000;
const RANGE_DEFAULT_MS = DAY_MS;
const RANGE_MAX_MS = 30 * DAY_MS;
const NS_PER_MS = 1_000_000n;

/** Tries a rule on the entries that are there. */
export function alertPreviewRoutes({
  alertQueries,
  flush,
  now,
}: Pick<ApiDeps, 'alertQueries' | 'flush' | 'now'>): RouteDeclaration[] {
  return [
    declareRoute({
      method: 'POST',
      path: '/projects/:projectId/alerts/preview',
      access: { kind: 'session', tenant: { kind: 'project', in: 'path', name: 'projectId', role: 'viewer' } },
      summary: 'When a rule would have fired on the entries received in a range; nothing is kept or sent',
      body: jsonBody(checkedPreviewSchema),
      answers: { 200: { description: 'What it would have done', schema: alertPreviewAnswerSchema } },
      handle: async ({ params, body, caller }) => {
        shedCostly(flush, true);
        const nowMs = now();
        const { condition, service } = body.draft;
        const spec = readWindowSpec(condition);
        const range = readRange(body, nowMs, spec.bucketS);
        const retentionMs = (caller.project?.retentionDays ?? 0) * DAY_MS;
        const scope = {
          projectId: params.projectId,
          oldestNs: BigInt(Math.trunc(nowMs - retentionMs)) * NS_PER_MS,
        };
        const rule = { id: 'preview', condition, service };
        const counted = { ...range, fromS: range.fromS - leadSeconds(spec), bucketS: spec.bucketS };
        const counts = await alertQueries.countBuckets(scope, rule, counted);
        return { status: 200, value: previewRule(spec, counts, range) };
      },
    }),
  ];
}

/** Whole buckets of the window from `from` on, to the end of the second of `to`, and not into the future. */
function readRange({ fromMs, toMs }: AlertPreviewInput, nowMs: number, bucketS: number): PreviewRange {
  const endMs = Math.min(toMs ?? nowMs, nowMs);
  const startMs = fromMs ?? endMs - RANGE_DEFAULT_MS;
  if (startMs >= endMs) {
    const expected = 'a time before `to` and before now';
    return refuseParameter('from', expected, new Date(startMs).toISOString());
  }
  if (endMs - startMs > RANGE_MAX_MS) {
    return refuseParameter('from', 'a time at most 30 d before `to`', new Date(startMs).toISOString());
  }
  const bucketMs = bucketS * 1_000;
  return { fromS: Math.floor(startMs / bucketMs) * bucketS, toS: Math.floor(endMs / 1_000) + 1 };
}
