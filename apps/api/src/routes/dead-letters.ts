import type { DeadLetterContent } from '@logpond/db/dead-letters';
import { ApiError, errorSchema } from '@logpond/schema/api-error';
import { DEAD_LETTER_ID, deadLetterQueryParams, deadLettersAnswerSchema } from '@logpond/schema/dead-letter';
import { ingestReceiptSchema } from '@logpond/schema/log-batch';
import type { ApiDeps } from '../api-deps.ts';
import { plainQuery } from '../query-spec.ts';
import { refuseUnreadable, replayDeadLetter } from '../replay-dead-letter.ts';
import { declareRoute } from '../route.ts';
import type { RouteDeclaration } from '../route.ts';

const DAY_MS = 86_400_000;

const READER = {
  kind: 'apiKeyOrSession',
  scope: 'query',
  tenant: { kind: 'project', in: 'path', name: 'id', role: 'viewer' },
} as const;

/** Whoever may send entries may send these again. */
const SENDER = {
  kind: 'apiKeyOrSession',
  scope: 'ingest',
  tenant: { kind: 'project', in: 'path', name: 'id', role: 'admin' },
} as const;

const paramPatterns = { letterId: DEAD_LETTER_ID } as const;

/** Acknowledged entries that could not be stored: seen, downloaded, replayed and deleted. */
export function deadLetterRoutes(deps: ApiDeps): RouteDeclaration[] {
  const { deadLetters } = deps;
  return [
    declareRoute({
      method: 'GET',
      path: '/projects/:id/dead-letters',
      access: READER,
      summary: 'Acknowledged log entries that could not be stored, newest letter first',
      query: plainQuery(deadLetterQueryParams),
      answers: { 200: { description: 'A page of letters', schema: deadLettersAnswerSchema } },
      handle: async ({ caller, query }) => ({
        status: 200,
        value: await deadLetters.list(caller.projectId, query),
      }),
    }),
    declareRoute({
      method: 'GET',
      path: '/projects/:id/dead-letters/:letterId',
      paramPatterns,
      access: READER,
      summary:
        'The log entries of a dead letter as POST /ingest takes them; 409 when they cannot be read any more',
      answers: {
        200: { description: 'One entry a line', contentType: 'application/x-ndjson' },
        409: { description: 'CONFLICT: the entries cannot be read any more', schema: errorSchema },
      },
      handle: async ({ caller, params }) => {
        const { payload, isReadable } = await find(deps, caller.projectId, params.letterId);
        if (!isReadable) throw refuseUnreadable();
        const headers = {
          'Content-Type': 'application/x-ndjson',
          'Content-Disposition': `attachment; filename="${params.letterId}.ndjson"`,
        };
        return { status: 200, text: payload.toString('utf8'), headers };
      },
    }),
    replayRoute(deps),
    removeRoute(deps),
  ];
}

function replayRoute({ deadLetters, flush }: ApiDeps): RouteDeclaration {
  return declareRoute({
    method: 'POST',
    path: '/projects/:id/dead-letters/:letterId/replay',
    paramPatterns,
    access: SENDER,
    guard: ({ projectId }) => flush.checkRoom(projectId),
    summary:
      'Store the entries of a dead letter again (API key with the scope ingest, or role admin); those refused stay in it',
    answers: {
      200: {
        description: 'The accepted entries are on disk and no longer in the letter',
        schema: ingestReceiptSchema,
      },
      400: { description: 'VALIDATION_ERROR: every entry is refused now', schema: errorSchema },
      409: {
        description: 'CONFLICT: the entries cannot be read any more, or are being replayed at this moment',
        schema: errorSchema,
      },
    },
    handle: async ({ caller, params }) => {
      const content = await find({ deadLetters }, caller.projectId, params.letterId);
      const value = await replayDeadLetter(content, caller.retentionDays * DAY_MS, { flush, deadLetters });
      return { status: 200, value };
    },
  });
}

function removeRoute({ deadLetters, log }: ApiDeps): RouteDeclaration {
  return declareRoute({
    method: 'DELETE',
    path: '/projects/:id/dead-letters/:letterId',
    paramPatterns,
    access: { kind: 'session', tenant: { kind: 'project', in: 'path', name: 'id', role: 'admin' } },
    summary: 'Delete a dead letter and its entries for good (role admin)',
    answers: { 204: { description: 'It is gone' } },
    handle: async ({ caller, params, requestId }) => {
      const projectId = caller.project?.id ?? params.id;
      if (!(await deadLetters.remove(projectId, params.letterId))) throw noSuchLetter();
      const fields = { requestId, projectId, letterId: params.letterId, userId: caller.user.id };
      log.info(fields, 'a dead letter was deleted');
      return { status: 204 };
    },
  });
}

async function find(
  { deadLetters }: Pick<ApiDeps, 'deadLetters'>,
  projectId: string,
  id: string,
): Promise<DeadLetterContent> {
  const content = await deadLetters.read(projectId, id);
  if (content === undefined) throw noSuchLetter();
  return content;
}

function noSuchLetter(): ApiError {
  return new ApiError('NOT_FOUND', { public: 'no such dead letter' });
}
