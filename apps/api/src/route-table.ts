import type { ApiDeps } from './api-deps.ts';
import type { RouteDeclaration } from './route.ts';
import { alertRoutes } from './routes/alerts.ts';
import { apiKeyRoutes } from './routes/api-keys.ts';
import { authRoutes } from './routes/auth.ts';
import { deadLetterRoutes } from './routes/dead-letters.ts';
import { healthRoutes } from './routes/health.ts';
import { ingestRoutes } from './routes/ingest.ts';
import { logStreamRoutes } from './routes/logs-stream.ts';
import { logRoutes } from './routes/logs.ts';
import { openApiRoutes } from './routes/openapi.ts';
import { organizationRoutes } from './routes/organizations.ts';
import { projectStatsRoutes } from './routes/project-stats.ts';
import { projectRoutes } from './routes/projects.ts';

/** Every route there is. Router, authorisation, OpenAPI and the tests over all routes come from this list. */
export function listRoutes(deps: ApiDeps): RouteDeclaration[] {
  const routes: RouteDeclaration[] = [
    ...healthRoutes(deps),
    ...authRoutes(deps),
    ...organizationRoutes(deps),
    ...projectRoutes(deps),
    ...projectStatsRoutes(deps),
    ...deadLetterRoutes(deps),
    ...apiKeyRoutes(deps),
    ...alertRoutes(deps),
    ...ingestRoutes(deps),
    ...logRoutes(deps),
    ...logStreamRoutes(deps),
    ...openApiRoutes(() => routes),
  ];
  return routes;
}
