import { levelOfName, levelOfNumber, isOwnLevel } from './level-names.ts';
import type { Clock } from './line-time.ts';
import { readFieldTime } from './line-time.ts';
import { isContainer, readScalar } from './lossless-json.ts';
import type { OutgoingEntry } from './outgoing-entry.ts';
import { createMetadata, LIMITS, putField } from './outgoing-entry.ts';

// Names of the usual writers: ours, pino and bunyan, winston, zap, logrus, structlog, ECS, Docker, journald.
const TIME_KEYS = ['time', 'timestamp', '@timestamp', 'ts', '__REALTIME_TIMESTAMP', 'datetime', 'eventTime'];
const MESSAGE_KEYS = ['message', 'msg', 'MESSAGE', 'log', 'event', 'text'];
const LEVEL_KEYS = [
  'level',
  'severity',
  'lvl',
  'loglevel',
  'log.level',
  'levelname',
  'severity_text',
  'PRIORITY',
];
const SERVICE_KEYS = [
  'service',
  'service.name',
  'service_name',
  'app',
  'application',
  'SYSLOG_IDENTIFIER',
  'logger',
  'name',
  '_COMM',
];
const TRACE_KEYS = ['trace_id', 'traceId', 'trace.id', 'traceID'];
const SPAN_KEYS = ['span_id', 'spanId', 'span.id'];
const SESSION_KEYS = ['session_id', 'sessionId', 'session.id'];

/** What could be read off the fields; the fields that gave it are gone from `rest`, all others are in it. */
export type ReadFields = Partial<Omit<OutgoingEntry, 'metadata'>> & { rest: Record<string, unknown> };

/**
 * Maps an object of any common shape. A field that was understood completely is consumed; a level that
 * is not one of the five is understood and kept as well; everything else stays in `rest`.
 */
export function readFields(fields: Record<string, unknown>, clock: Clock): ReadFields {
  const rest = createMetadata();
  for (const key of Object.keys(fields)) rest[key] = fields[key];
  const found: ReadFields = { rest };
  const time = takeField(rest, TIME_KEYS, (value) => readTime(value, clock));
  const message = takeField(rest, MESSAGE_KEYS, readMessage);
  const service = takeField(rest, SERVICE_KEYS, readService);
  const traceId = takeField(rest, TRACE_KEYS, readCorrelation);
  const spanId = takeField(rest, SPAN_KEYS, readCorrelation);
  const sessionId = takeField(rest, SESSION_KEYS, readCorrelation);
  takeLevel(rest, found);
  if (time !== undefined) found.time = time;
  if (message !== undefined) found.message = message;
  if (service !== undefined) found.service = service;
  if (traceId !== undefined) found.trace_id = traceId;
  if (spanId !== undefined) found.span_id = spanId;
  if (sessionId !== undefined) found.session_id = sessionId;
  return found;
}

/** Puts the fields that are left under the entry's metadata; a `metadata` object among them is its base. */
export function foldRest(rest: Record<string, unknown>, metadata: Record<string, unknown>): void {
  const base = rest['metadata'];
  if (isContainer(base) && !Array.isArray(base)) {
    for (const key of Object.keys(base)) putField(metadata, key, base[key]);
    delete rest['metadata'];
  } else if (base === null) {
    delete rest['metadata'];
  }
  for (const key of Object.keys(rest)) putField(metadata, key, rest[key]);
}

function takeField<T>(
  rest: Record<string, unknown>,
  keys: readonly string[],
  read: (value: unknown) => T | undefined,
): T | undefined {
  for (const key of keys) {
    if (rest[key] === undefined) continue;
    const value = read(rest[key]);
    if (value !== undefined) {
      delete rest[key];
      return value;
    }
  }
  return undefined;
}

function takeLevel(rest: Record<string, unknown>, found: ReadFields): void {
  for (const key of LEVEL_KEYS) {
    const text = readScalar(rest[key]);
    if (text === undefined || text === '') continue;
    const level = /^\d+$/.test(text) ? levelOfNumber(Number(text)) : levelOfName(text);
    if (level === undefined) continue;
    found.level = level;
    if (isOwnLevel(text)) delete rest[key];
    return;
  }
}

function readTime(value: unknown, clock: Clock): string | undefined {
  const text = readScalar(value);
  // A number with an exponent or more digits than any unit has is no time.
  return text === undefined ? undefined : readFieldTime(text, { ...clock, isUtc: true });
}

function readMessage(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  // journald writes a field that is not plain UTF-8 text as an array of bytes.
  if (!Array.isArray(value) || value.length === 0) return undefined;
  const isBytes = value.every(
    (item) => typeof item === 'number' && Number.isInteger(item) && item >= 0 && item < 256,
  );
  return isBytes ? Buffer.from(value as number[]).toString('utf8') : undefined;
}

function readService(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' && Array.from(value).length <= LIMITS.serviceChars
    ? value
    : undefined;
}

function readCorrelation(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' && Array.from(value).length <= LIMITS.correlationChars
    ? value
    : undefined;
}
