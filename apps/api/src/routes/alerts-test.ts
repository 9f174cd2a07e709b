import { StoreError } from '@logpond/db/store-error';
import { ALERT_CHANNELS, DELIVERY_STATUSES } from '@logpond/schema/alert-history';
import { ApiError, errorSchema } from '@logpond/schema/api-error';
import { z } from 'zod';
import type { ApiDeps } from '../api-deps.ts';
import { declareRoute } from '../route.ts';
import type { RouteDeclaration } from '../route.ts';

/** How long the alert worker may take. */
const TEST_TIMEOUT_MS = 15_000;
/** Between tests of one rule through this process: each sends real messages to other people's servers. */
const TEST_INTERVAL_MS = 10_000;
/** Rules remembered for that; beyond them the oldest are forgotten. */
const RULES_REMEMBERED_MAX = 10_000;

const testAnswerSchema = z.object({
  deliveries: z.array(
    z.object({
      channel: z.enum(ALERT_CHANNELS),
      target: z.string(),
      status: z.enum(DELIVERY_STATUSES),
      answer: z.string().nullable().describe('What the mail server or the web server said'),
    }),
  ),
});

/** Really sends what a rule would send. */
export function alertTestRoutes({
  alertRules,
  notifications,
  now,
}: Pick<ApiDeps, 'alertRules' | 'notifications' | 'now'>): RouteDeclaration[] {
  const turns = new TestTurns();
  return [
    declareRoute({
      method: 'POST',
      path: '/projects/:projectId/alerts/:alertId/test',
      access: { kind: 'session', tenant: { kind: 'project', in: 'path', name: 'projectId', role: 'member' } },
      summary: 'Send a test notification to everybody whom an alert rule tells; once in 10 s',
      answers: {
        200: { description: 'What came of it, for each recipient', schema: testAnswerSchema },
        503: { description: 'UNAVAILABLE: no alert worker answered within 15 s', schema: errorSchema },
      },
      handle: async ({ params }) => {
        const rule = await alertRules.find(params.projectId, params.alertId);
        if (rule === undefined) throw new ApiError('NOT_FOUND', { public: 'no such alert rule' });
        turns.take(rule.id, now());
        try {
          return { status: 200, value: { deliveries: await notifications.sendTest(rule, TEST_TIMEOUT_MS) } };
        } catch (error) {
          if (!(error instanceof StoreError)) throw error;
          throw new ApiError('UNAVAILABLE', {
            public: `no alert worker answered within ${TEST_TIMEOUT_MS / 1_000} s; is one running?`,
            cause: error,
          });
        }
      },
    }),
  ];
}

class TestTurns {
  /** When each rule was tested last, oldest first. */
  readonly #lastMs = new Map<string, number>();

  /** @throws {ApiError} RATE_LIMITED when this rule was tested less than 10 s ago. */
  take(ruleId: string, nowMs: number): void {
    const leftMs = (this.#lastMs.get(ruleId) ?? -Infinity) + TEST_INTERVAL_MS - nowMs;
    if (leftMs > 0) {
      throw new ApiError('RATE_LIMITED', {
        public: `expected ${TEST_INTERVAL_MS / 1_000} s between two tests of a rule, got one ${Math.ceil(leftMs / 1_000)} s too early`,
        retryAfterS: leftMs / 1_000,
      });
    }
    this.#lastMs.delete(ruleId);
    this.#lastMs.set(ruleId, nowMs);
    const [oldest] = this.#lastMs.keys();
    if (this.#lastMs.size > RULES_REMEMBERED_MAX && oldest !== undefined) this.#lastMs.delete(oldest);
  }
}
