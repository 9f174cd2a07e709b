import { parseStreamQuery, streamQueryParams } from '@logpond/schema/log-query';
import { z } from 'zod';
import type { ApiDeps } from '../api-deps.ts';
import { declareRoute } from '../route.ts';
import type { RouteDeclaration } from '../route.ts';

const STREAM_HEADERS = {
  'Content-Type': 'text/event-stream; charset=utf-8',
  'Cache-Control': 'no-store, no-transform',
  // Asks nginx and what learned from it not to hold events back.
  'X-Accel-Buffering': 'no',
} as const;
const EVENT_ID_LENGTH_MAX = 128;

const streamHeaders = z.object({
  'Last-Event-ID': z
    .string()
    .optional()
    .describe(
      'Id of the last event seen: what came after it is sent first. Goes before the parameter lastEventId',
    ),
});

/** The live tail. */
export function logStreamRoutes({
  hub,
  streams,
  log,
}: Pick<ApiDeps, 'hub' | 'streams' | 'log'>): RouteDeclaration[] {
  return [
    declareRoute({
      method: 'GET',
      path: '/logs/stream',
      access: {
        kind: 'apiKeyOrSession',
        scope: 'stream',
        tenant: { kind: 'project', in: 'query', name: 'projectId', role: 'viewer' },
        allowsQueryToken: true,
      },
      summary:
        'New log entries as Server-Sent Events: "log" holds an entry, "gap" says that some are missing',
      query: { schema: streamQueryParams, parse: parseStreamQuery },
      headers: streamHeaders,
      answers: { 200: { description: 'Events until one side ends it', contentType: 'text/event-stream' } },
      handle: async ({ caller, query, headers, isHead }) => {
        if (isHead) return { status: 200, headers: STREAM_HEADERS };
        const lastEventId = (headers['Last-Event-ID'] || query.lastEventId)?.slice(0, EVENT_ID_LENGTH_MAX);
        const place = streams.open(caller.projectId, caller.keyId, caller.isStillAllowed);
        try {
          const events = await hub.open({
            projectId: caller.projectId,
            filter: query.filter,
            withProjectId: caller.by === 'session',
            signal: place.signal,
            ...(lastEventId === undefined ? {} : { lastEventId }),
          });
          const onFault = (error: unknown): void => log.warn({ err: error }, 'a live tail broke off');
          return { status: 200, headers: STREAM_HEADERS, stream: watchEnd(events, place.release, onFault) };
        } catch (error) {
          place.release();
          throw error;
        }
      },
    }),
  ];
}

/**
 * Passes a stream through and tells when it is over, whichever side ended it. A failure ends it quietly:
 * the server below would otherwise write the error's text into the answer.
 */
function watchEnd(
  stream: ReadableStream<Uint8Array>,
  onEnd: () => void,
  onFault: (error: unknown) => void,
): ReadableStream<Uint8Array> {
  const reader = stream.getReader();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (!done) {
            controller.enqueue(value);
            return;
          }
        } catch (error) {
          onFault(error);
        }
        onEnd();
        controller.close();
      },
      async cancel(reason) {
        onEnd();
        await reader.cancel(reason);
      },
    },
    // Nothing is read ahead: how much may wait for a slow reader is the hub's decision.
    { highWaterMark: 0 },
  );
}
