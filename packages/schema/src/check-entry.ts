import type { JsonObject } from './check-metadata.ts';
import { readMetadataJson } from './check-metadata.ts';
import { describeValue } from './describe-value.ts';
import { isRawNumber } from './exact-json.ts';
import type { CheckedEntry, EntryRefusal } from './log-entry.ts';
import {
  CORRELATION_LENGTH_MAX,
  countUtf8Bytes,
  ENTRY_BYTES_MAX,
  isLongerThan,
  levelNumberOf,
  LEVELS,
  MESSAGE_BYTES_MAX,
  SERVICE_LENGTH_MAX,
} from './log-entry.ts';
import { formatTimestampNs, parseTimestampNs } from './timestamp.ts';

/**
 * What the rules depend on besides the entry. `hasRawNumbers`: the entry came from parseExactJson.
 * Times are nanoseconds since 1970, bounds inclusive.
 */
export type EntryContext = {
  nowMs: number;
  minTimeNs: bigint;
  maxTimeNs: bigint;
  hasRawNumbers?: boolean;
};

/** Whether checkLogEntry refused. */
export function isRefusal(outcome: CheckedEntry | EntryRefusal): outcome is EntryRefusal {
  return (outcome as EntryRefusal).code !== undefined;
}

function refuse(path: string, message: string): EntryRefusal {
  return { code: 'VALIDATION_ERROR', path, message };
}

function refuseValue(path: string, expected: string, value: unknown): EntryRefusal {
  return refuse(path, `expected ${expected}, got ${describeValue(value)}`);
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !isRawNumber(value);
}

/** Nanoseconds since 1970 of `time`, of its alias `timestamp`, or of the server's clock. */
function readTimeNs(entry: JsonObject, context: EntryContext): bigint | EntryRefusal {
  const time = entry['time'] ?? undefined;
  const path = time === undefined ? 'timestamp' : 'time';
  const sent = time ?? entry['timestamp'] ?? undefined;
  if (sent === undefined) return BigInt(Math.trunc(context.nowMs)) * 1_000_000n;
  const ns = typeof sent === 'string' ? parseTimestampNs(sent) : undefined;
  if (ns === undefined)
    return refuseValue(path, 'an RFC 3339 timestamp such as 2026-01-31T12:00:00.000Z', sent);
  if (ns >= context.minTimeNs && ns <= context.maxTimeNs) return ns;
  const from = formatTimestampNs(context.minTimeNs);
  const to = formatTimestampNs(context.maxTimeNs);
  return refuseValue(path, `a time between ${from} (the project's retention) and ${to}`, sent);
}

function isService(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && !isLongerThan(value, SERVICE_LENGTH_MAX);
}

/** Undefined when the message may be stored. */
function refuseMessage(value: unknown): EntryRefusal | undefined {
  if (typeof value !== 'string') return refuseValue('message', 'a text', value);
  if (value.length * 3 <= MESSAGE_BYTES_MAX) return undefined;
  const bytes = countUtf8Bytes(value);
  if (bytes <= MESSAGE_BYTES_MAX) return undefined;
  return refuse('message', `expected at most ${MESSAGE_BYTES_MAX} bytes of UTF-8, got ${bytes}`);
}

function isAbsentMetadata(value: unknown): boolean {
  return value === undefined || value === null || (Array.isArray(value) && value.length === 0);
}

function isCorrelation(value: unknown): value is string | null | undefined {
  if (typeof value === 'string') return !isLongerThan(value, CORRELATION_LENGTH_MAX);
  return value === undefined || value === null;
}

/** Undefined when the entry's own fields other than its time have the right types and lengths. */
function refuseFields(entry: JsonObject): EntryRefusal | undefined {
  const {
    service,
    level,
    message,
    metadata,
    trace_id: traceId,
    span_id: spanId,
    session_id: sessionId,
  } = entry;
  if (!isService(service))
    return refuseValue('service', `a text of 1 to ${SERVICE_LENGTH_MAX} characters`, service);
  if (typeof level !== 'string' || levelNumberOf(level) === undefined) {
    return refuseValue('level', `one of ${LEVELS.join(', ')}`, level);
  }
  const refusedMessage = refuseMessage(message);
  if (refusedMessage !== undefined) return refusedMessage;
  if (!isAbsentMetadata(metadata) && !isObject(metadata))
    return refuseValue('metadata', 'an object', metadata);
  const expected = `a text of at most ${CORRELATION_LENGTH_MAX} characters`;
  if (!isCorrelation(traceId)) return refuseValue('trace_id', expected, traceId);
  if (!isCorrelation(spanId)) return refuseValue('span_id', expected, spanId);
  if (!isCorrelation(sessionId)) return refuseValue('session_id', expected, sessionId);
  return undefined;
}

/** The text of an optional identifier; null and "" are absent. */
function readCorrelation(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value.toWellFormed() : undefined;
}

/** Bytes of the entry as compact JSON text, or 0 when it cannot be over the limit. */
function countEntryBytes(entry: JsonObject, metadataJson: string): number {
  const message = entry['message'] as string;
  // A unit of a JSON text is at most 3 bytes, of any other text 6 once escaped; 8,192 are ample for the other fields.
  if (metadataJson.length * 3 + message.length * 6 + 8192 <= ENTRY_BYTES_MAX) return 0;
  const { time, service, level, trace_id: traceId, span_id: spanId, session_id: sessionId } = entry;
  const others = { time, service, level, message, trace_id: traceId, span_id: spanId, session_id: sessionId };
  return countUtf8Bytes(JSON.stringify(others)) + countUtf8Bytes(metadataJson) + ',"metadata":'.length;
}

/**
 * Checks one parsed log entry against every rule of POST /ingest (contract.md) and brings it into the form that is
 * stored. Returns the first refusal in the order time, service, level, message, metadata, trace_id, span_id,
 * session_id, depth and keys of the metadata, size (path ''). Handwritten because it runs for every entry; equal to
 * logEntrySchema by test.
 */
export function checkLogEntry(value: unknown, context: EntryContext): CheckedEntry | EntryRefusal {
  if (!isObject(value)) return refuseValue('', 'a log entry object', value);
  const timeNs = readTimeNs(value, context);
  if (typeof timeNs !== 'bigint') return timeNs;
  const refused = refuseFields(value);
  if (refused !== undefined) return refused;
  const metadata = value['metadata'];
  const metadataJson = readMetadataJson(
    value,
    isObject(metadata) ? metadata : undefined,
    context.hasRawNumbers === true,
  );
  if (typeof metadataJson !== 'string') return metadataJson;
  const bytes = countEntryBytes(value, metadataJson);
  if (bytes > ENTRY_BYTES_MAX) {
    return refuse('', `expected at most ${ENTRY_BYTES_MAX} bytes of JSON in one log entry, got ${bytes}`);
  }
  return {
    timeNs,
    level: levelNumberOf(value['level'] as string) ?? 0,
    service: (value['service'] as string).toWellFormed(),
    message: (value['message'] as string).toWellFormed(),
    metadataJson,
    traceId: readCorrelation(value['trace_id']),
    spanId: readCorrelation(value['span_id']),
    sessionId: readCorrelation(value['session_id']),
  };
}
