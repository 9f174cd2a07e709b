import { z } from 'zod';
import packageJson from '../../package.json' with { type: 'json' };
import type { ApiDeps } from '../api-deps.ts';
import { declareRoute } from '../route.ts';
import type { RouteDeclaration } from '../route.ts';

const checkSchema = z.enum(['ok', 'unavailable', 'timeout', 'schema']);
const readinessSchema = z.object({
  status: z.enum(['ok', 'unavailable', 'stopping']),
  checks: z.object({ redis: checkSchema, clickhouse: checkSchema }),
});
const healthSchema = z.object({
  status: z.literal('ok'),
  timestamp: z.string().meta({ format: 'date-time' }),
  version: z.string(),
});

/** Whether this process lives, and whether it can work. They tell nothing else (S47). */
export function healthRoutes(deps: Pick<ApiDeps, 'readiness' | 'now'>): RouteDeclaration[] {
  const shared = {
    method: 'GET',
    isAtRoot: true,
    quiet: 'always',
    worksBeforeSetup: true,
    access: { kind: 'public' },
  } as const;
  return [
    declareRoute({
      ...shared,
      path: '/health',
      summary: 'The deployment runs',
      answers: { 200: { description: 'It runs', schema: healthSchema } },
      handle: () => ({
        status: 200,
        value: { status: 'ok', timestamp: new Date(deps.now()).toISOString(), version: packageJson.version },
      }),
    }),
    declareRoute({
      ...shared,
      path: '/health/live',
      summary: 'The process answers',
      answers: { 200: { description: 'It answers', schema: z.object({ status: z.literal('ok') }) } },
      handle: () => ({ status: 200, value: { status: 'ok' } }),
    }),
    declareRoute({
      ...shared,
      path: '/health/ready',
      summary: 'Redis and ClickHouse are in reach, the schema is there, and the process is not stopping',
      answers: {
        200: { description: 'Ready', schema: readinessSchema },
        503: { description: 'Not ready', schema: readinessSchema },
      },
      handle: async () => {
        const report = await deps.readiness.report();
        return report.status === 'ok'
          ? { status: 200, value: report }
          : { status: 503, value: report, headers: { 'Retry-After': '1' } };
      },
    }),
  ];
}
