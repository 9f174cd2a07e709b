import { formatTimestampNs } from '@logpond/schema/timestamp';
import type { BlockEntry } from './decode.ts';

/**
 * One log entry as POST /ingest takes it, as JSON text on one line: sending it again stores the same entry but for
 * its id. The metadata is spliced in as it is, so that numbers beyond a double survive.
 */
export function renderIngestJson(entry: Omit<BlockEntry, 'runIndex' | 'row'>): string {
  const head = JSON.stringify({
    time: formatTimestampNs(entry.timeNs),
    service: entry.service,
    level: entry.level,
    message: entry.message,
    trace_id: entry.traceId,
    span_id: entry.spanId,
    session_id: entry.sessionId,
  });
  return `${head.slice(0, -1)},"metadata":${entry.metadataJson}}`;
}
