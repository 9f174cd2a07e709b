import type { Level } from '@logpond/schema/log-entry';
import { formatTimestampNs } from '@logpond/schema/timestamp';

/** A log entry as it is stored, with its public id. `metadataJson` is the JSON text of an object. */
export type StoredEntry = {
  id: string;
  timeNs: bigint;
  service: string;
  level: Level;
  message: string;
  metadataJson: string;
  traceId?: string | undefined;
  spanId?: string | undefined;
  sessionId?: string | undefined;
  /** Only for callers that may see several projects. */
  projectId?: string | undefined;
};

function renderOptional(key: string, value: string | undefined): string {
  return value === undefined ? '' : `,"${key}":${JSON.stringify(value)}`;
}

/**
 * One log entry as every route returns it, as JSON text on one line. The metadata is spliced in as it is, so that
 * numbers beyond a double survive.
 */
export function renderEntryJson(entry: StoredEntry): string {
  return (
    `{"id":"${entry.id}","time":"${formatTimestampNs(entry.timeNs)}","service":${JSON.stringify(entry.service)}` +
    `,"level":"${entry.level}","message":${JSON.stringify(entry.message)},"metadata":${entry.metadataJson}` +
    renderOptional('trace_id', entry.traceId) +
    renderOptional('span_id', entry.spanId) +
    renderOptional('session_id', entry.sessionId) +
    `${renderOptional('project_id', entry.projectId)}}`
  );
}
