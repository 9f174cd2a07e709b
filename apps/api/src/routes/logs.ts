import { renderEntryJson } from '@logpond/log-block/entry-json';
import { ApiError } from '@logpond/schema/api-error';
import {
  aggregateAnswerSchema,
  aggregateQueryParams,
  logQueryParams,
  parseAggregateQuery,
  parseLogQuery,
  searchAnswerSchema,
} from '@logpond/schema/log-query';
import type { LogQuery } from '@logpond/schema/log-query';
import { storedEntrySchema } from '@logpond/schema/log-entry';
import type { ProjectScope, SearchPage } from '@logpond/db/log-store';
import { z } from 'zod';
import type { ApiDeps } from '../api-deps.ts';
import { declareRoute } from '../route.ts';
import type { ProjectCaller, RouteDeclaration } from '../route.ts';
import { isCostlyAggregation, isCostlySearch, shedCostly } from '../shed-queries.ts';

const READER = {
  kind: 'apiKeyOrSession',
  scope: 'query',
  tenant: { kind: 'project', in: 'query', name: 'projectId', role: 'viewer' },
} as const;

/** Search, counts and single entries of one project. */
export function logRoutes({ logStore, flush }: Pick<ApiDeps, 'logStore' | 'flush'>): RouteDeclaration[] {
  return [
    declareRoute({
      method: 'GET',
      path: '/logs',
      access: READER,
      summary: 'Search log entries, newest first',
      query: { schema: logQueryParams, parse: parseLogQuery },
      answers: { 200: { description: 'A page of entries', schema: searchAnswerSchema } },
      handle: async ({ caller, query }) => {
        shedCostly(flush, isCostlySearch(query));
        const page = await logStore.search(scopeOf(caller), query);
        return { status: 200, text: renderPage(page, query) };
      },
    }),
    declareRoute({
      method: 'GET',
      path: '/logs/aggregated',
      access: READER,
      summary: 'Counts of log entries over time, by service and by error message',
      query: { schema: aggregateQueryParams, parse: parseAggregateQuery },
      answers: { 200: { description: 'Counts', schema: aggregateAnswerSchema } },
      handle: async ({ caller, query }) => {
        shedCostly(flush, isCostlyAggregation(query));
        return { status: 200, value: await logStore.aggregate(scopeOf(caller), query) };
      },
    }),
    declareRoute({
      method: 'GET',
      path: '/logs/:id',
      access: READER,
      summary: 'One log entry',
      answers: { 200: { description: 'The entry', schema: z.object({ log: storedEntrySchema }) } },
      handle: async ({ caller, params }) => {
        const entry = await logStore.findEntry(scopeOf(caller), params.id);
        if (entry === undefined) throw new ApiError('NOT_FOUND', { public: 'no such log entry' });
        return { status: 200, text: `{"log":${renderEntryJson(entry)}}` };
      },
    }),
  ];
}

function scopeOf(caller: ProjectCaller): ProjectScope {
  return {
    projectId: caller.projectId,
    retentionDays: caller.retentionDays,
    withProjectId: caller.by === 'session',
  };
}

/** As text, because metadata is passed through as it was sent: parsing it would change large integers. */
function renderPage(page: SearchPage, { limit, offset }: LogQuery): string {
  const { total, totalRelation, hasMore, nextCursor } = page;
  const rest = JSON.stringify({ total, totalRelation, limit, offset, hasMore, nextCursor });
  return `{"logs":[${page.entries.map(renderEntryJson).join(',')}],${rest.slice(1)}`;
}
