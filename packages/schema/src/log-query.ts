import { z } from 'zod';
import { parseDurationMs } from './duration.ts';
import type { Level } from './log-entry.ts';
import {
  CORRELATION_LENGTH_MAX,
  isLongerThan,
  levelNumberOf,
  levelOfNumber,
  LEVELS,
  storedEntrySchema,
} from './log-entry.ts';
import { readRepeated, readSingle, refuseParameter } from './query-parameter.ts';
import { parseRangeBoundNs } from './timestamp.ts';

const LIMIT_DEFAULT = 100;
const LIMIT_MAX = 1000;
/** Deeper pages need a cursor. */
const OFFSET_MAX = 10_000;
const BUCKETS_MAX = 10_080;
const CURSOR_LENGTH_MAX = 2048;
const DAY_MS = 86_400_000;
/** Unicode code points of `q` and of each `not.q`. */
const SEARCH_TEXT_LENGTH_MAX = 512;
const FILTER_VALUES_MAX = 100;
const METADATA_PATHS_MAX = 20;
const METADATA_PATH_LENGTH_MAX = 512;
const METADATA_PREFIX = 'metadata.';

/** Which log entries of a project are meant. Empty arrays and absent fields filter nothing; times are inclusive. */
export type LogFilter = {
  fromNs?: bigint;
  toNs?: bigint;
  services: string[];
  levels: Level[];
  notServices: string[];
  notLevels: Level[];
  text?: { mode: SearchMode; query: string };
  /** An entry whose message matches any of these is left out. */
  notTexts: string[];
  traceId?: string;
  /** Each path (as written after `metadata.`) must have any of its values. */
  metadata: { path: string; values: string[] }[];
};

const SEARCH_MODES = ['fulltext', 'substring', 'regex'] as const;
export type SearchMode = (typeof SEARCH_MODES)[number];

export type LogQuery = {
  filter: LogFilter;
  limit: number;
  offset: number;
  cursor?: string;
  order: 'asc' | 'desc';
};

/** Range inclusive, the same as in `filter`; `weekly`: the interval was written in weeks, which start on Monday. */
export type AggregateQuery = {
  filter: LogFilter;
  fromNs: bigint;
  toNs: bigint;
  intervalMs: number;
  weekly: boolean;
};

export type StreamQuery = { filter: LogFilter; lastEventId?: string };

function readLevels(params: URLSearchParams, name: string): Level[] {
  return readRepeated(params, name, FILTER_VALUES_MAX).map((text) => {
    const level = levelOfNumber(levelNumberOf(text) ?? 0);
    return level ?? refuseParameter(name, `one of ${LEVELS.join(', ')}`, text);
  });
}

function readBoundNs(params: URLSearchParams, name: string): bigint | undefined {
  const text = readSingle(params, name);
  if (text === undefined) return undefined;
  // A plus sign that was not percent-encoded has become a space.
  const ns = parseRangeBoundNs(
    text.replace(/ (?=\d\d(?::?\d\d)?$)/, (space, at: number) => (at > 10 ? '+' : space)),
  );
  return ns ?? refuseParameter(name, 'an RFC 3339 time such as 2026-01-31T12:00:00Z', text);
}

function checkSearchText(name: string, text: string): string {
  if (!isLongerThan(text, SEARCH_TEXT_LENGTH_MAX)) return text;
  return refuseParameter(name, `at most ${SEARCH_TEXT_LENGTH_MAX} characters`, text);
}

function readText(params: URLSearchParams): LogFilter['text'] {
  const sent = readSingle(params, 'searchMode') ?? 'fulltext';
  const mode = SEARCH_MODES.find((known) => known === sent);
  if (mode === undefined) return refuseParameter('searchMode', `one of ${SEARCH_MODES.join(', ')}`, sent);
  const query = readSingle(params, 'q');
  return query === undefined ? undefined : { mode, query: checkSearchText('q', query) };
}

function readTraceId(params: URLSearchParams): string | undefined {
  const traceId = readSingle(params, 'traceId');
  if (traceId === undefined || !isLongerThan(traceId, CORRELATION_LENGTH_MAX)) return traceId;
  return refuseParameter('traceId', `at most ${CORRELATION_LENGTH_MAX} characters`, traceId);
}

function readMetadataFilters(params: URLSearchParams): LogFilter['metadata'] {
  const names = new Set([...params.keys()].filter((name) => name.startsWith(METADATA_PREFIX)));
  if (names.size > METADATA_PATHS_MAX) {
    return refuseParameter('metadata', `at most ${METADATA_PATHS_MAX} paths`, [...names]);
  }
  return [...names].map((name) => {
    const path = name.slice(METADATA_PREFIX.length);
    if (path === '' || path.length > METADATA_PATH_LENGTH_MAX) {
      return refuseParameter(METADATA_PREFIX, `a path of 1 to ${METADATA_PATH_LENGTH_MAX} characters`, path);
    }
    const values = params.getAll(name);
    if (values.length <= FILTER_VALUES_MAX) return { path, values };
    return refuseParameter(name, `this parameter at most ${FILTER_VALUES_MAX} times`, values);
  });
}

function readFilter(params: URLSearchParams): LogFilter {
  const fromNs = readBoundNs(params, 'from');
  const toNs = readBoundNs(params, 'to');
  if (fromNs !== undefined && toNs !== undefined && fromNs > toNs) {
    return refuseParameter('from', `a time not after to (${params.get('to')})`, params.get('from'));
  }
  const text = readText(params);
  const traceId = readTraceId(params);
  return {
    ...(fromNs === undefined ? {} : { fromNs }),
    ...(toNs === undefined ? {} : { toNs }),
    services: readRepeated(params, 'service', FILTER_VALUES_MAX),
    levels: readLevels(params, 'level'),
    notServices: readRepeated(params, 'not.service', FILTER_VALUES_MAX),
    notLevels: readLevels(params, 'not.level'),
    ...(text === undefined ? {} : { text }),
    notTexts: readRepeated(params, 'not.q', FILTER_VALUES_MAX).map((query) =>
      checkSearchText('not.q', query),
    ),
    ...(traceId === undefined ? {} : { traceId }),
    metadata: readMetadataFilters(params),
  };
}

function readInteger(params: URLSearchParams, name: string, fallback: number): number {
  const text = readSingle(params, name);
  if (text === undefined) return fallback;
  return /^\d{1,15}$/.test(text) ? Number(text) : NaN;
}

function readOrder(params: URLSearchParams): 'asc' | 'desc' {
  const order = readSingle(params, 'order') ?? 'desc';
  if (order === 'asc' || order === 'desc') return order;
  return refuseParameter('order', 'asc or desc', order);
}

function readOffset(params: URLSearchParams): number {
  const offset = readInteger(params, 'offset', 0);
  if (offset >= 0 && offset <= OFFSET_MAX) return offset;
  const expected = `an integer from 0 to ${OFFSET_MAX} (page deeper with cursor=<nextCursor of the last answer>)`;
  return refuseParameter('offset', expected, params.get('offset'));
}

/**
 * Reads the parameters of GET /logs. Unknown ones are ignored, as are empty values. Throws VALIDATION_ERROR with one
 * detail whose path is the parameter.
 */
export function parseLogQuery(params: URLSearchParams): LogQuery {
  const filter = readFilter(params);
  const limit = readInteger(params, 'limit', LIMIT_DEFAULT);
  if (!(limit >= 1 && limit <= LIMIT_MAX)) {
    return refuseParameter('limit', `an integer from 1 to ${LIMIT_MAX}`, params.get('limit'));
  }
  const query: LogQuery = { filter, limit, offset: readOffset(params), order: readOrder(params) };
  const cursor = readSingle(params, 'cursor');
  if (cursor === undefined) return query;
  if (cursor.length > CURSOR_LENGTH_MAX)
    return refuseParameter('cursor', 'the nextCursor of an answer', cursor);
  if (query.offset > 0) return refuseParameter('offset', 'no offset beside a cursor', params.get('offset'));
  return { ...query, cursor };
}

/** Reads the parameters of GET /logs/aggregated; without a range, the 24 h before `nowMs`. Throws as parseLogQuery. */
export function parseAggregateQuery(params: URLSearchParams, nowMs: number): AggregateQuery {
  const filter = readFilter(params);
  const interval = readSingle(params, 'interval') ?? '1h';
  const intervalMs = parseDurationMs(interval);
  if (intervalMs === undefined)
    return refuseParameter('interval', '<n>s, <n>m, <n>h, <n>d or <n>w', interval);
  const dayNs = BigInt(DAY_MS) * 1_000_000n;
  const toNs = filter.toNs ?? BigInt(Math.trunc(nowMs)) * 1_000_000n;
  const fromNs = filter.fromNs ?? (toNs > dayNs ? toNs - dayNs : 0n);
  if (fromNs > toNs) return refuseParameter('from', 'a time not after to (default: now)', params.get('from'));
  if (toNs - fromNs > BigInt(intervalMs) * 1_000_000n * BigInt(BUCKETS_MAX)) {
    const expected = `an interval that cuts the range into at most ${BUCKETS_MAX} buckets`;
    return refuseParameter('interval', expected, interval);
  }
  return { filter: { ...filter, fromNs, toNs }, fromNs, toNs, intervalMs, weekly: interval.endsWith('w') };
}

/**
 * Reads the parameters of GET /logs/stream: the filters of /logs without `from` and `to`, and without regular
 * expressions, because the stream is matched in this process. Throws as parseLogQuery.
 */
export function parseStreamQuery(params: URLSearchParams): StreamQuery {
  const { fromNs: _from, toNs: _to, ...filter } = readFilter(params);
  if (filter.text?.mode === 'regex') {
    return refuseParameter('searchMode', 'fulltext or substring on the stream', 'regex');
  }
  const lastEventId = readSingle(params, 'lastEventId');
  return lastEventId === undefined
    ? { filter }
    : { filter, lastEventId: lastEventId.slice(0, CURSOR_LENGTH_MAX) };
}

const filterParams = {
  service: z.array(z.string()).optional().describe('May be repeated: any of them'),
  level: z.array(z.enum(LEVELS)).optional().describe('May be repeated: any of them; any letter case'),
  'not.service': z.array(z.string()).optional().describe('May be repeated: none of them'),
  'not.level': z.array(z.enum(LEVELS)).optional().describe('May be repeated: none of them'),
  'not.q': z
    .array(z.string())
    .optional()
    .describe('May be repeated: entries that match any of them are left out'),
  q: z
    .string()
    .max(512)
    .optional()
    .describe('Words of the message in any order and case; "a phrase" in quotes'),
  searchMode: z.enum(SEARCH_MODES).default('fulltext').describe('How q is read; regex is RE2'),
  traceId: z.string().optional().describe('UUID, 32-hex or other text'),
  'metadata.<path>': z
    .array(z.string())
    .optional()
    .describe('Value at a path of the metadata; may be repeated'),
};

const rangeParams = {
  from: z.string().optional().meta({ format: 'date-time', description: 'Inclusive' }),
  to: z.string().optional().meta({ format: 'date-time', description: 'Inclusive' }),
};

export const logQueryParams = z.object({
  ...filterParams,
  ...rangeParams,
  limit: z.int().min(1).max(LIMIT_MAX).default(LIMIT_DEFAULT),
  offset: z.int().min(0).max(OFFSET_MAX).default(0),
  cursor: z.string().optional().describe('nextCursor of the page before; excludes offset'),
  order: z.enum(['asc', 'desc']).default('desc'),
});

export const aggregateQueryParams = z.object({
  ...filterParams,
  ...rangeParams,
  interval: z.string().default('1h').describe('<n>s, <n>m, <n>h, <n>d or <n>w; at most 10,080 buckets'),
});

export const streamQueryParams = z.object({
  ...filterParams,
  searchMode: z.enum(['fulltext', 'substring']).default('fulltext').describe('How q is read'),
  lastEventId: z.string().optional().describe('Resume after this id; the header Last-Event-ID does the same'),
});

/** The answer of GET /logs. */
export const searchAnswerSchema = z
  .object({
    logs: z.array(storedEntrySchema),
    total: z.int().min(0).describe('Exact up to 10,000, a lower bound above'),
    totalRelation: z.enum(['eq', 'gte']),
    limit: z.int(),
    offset: z.int(),
    hasMore: z.boolean(),
    nextCursor: z.string().nullable(),
  })
  .meta({ id: 'SearchAnswer' });

/** The answer of GET /logs/aggregated. */
export const aggregateAnswerSchema = z
  .object({
    timeseries: z.array(
      z.object({
        bucket: z.string().meta({ format: 'date-time' }),
        total: z.int().min(0),
        by_level: z.object({
          debug: z.int().min(0),
          info: z.int().min(0),
          warn: z.int().min(0),
          error: z.int().min(0),
          critical: z.int().min(0),
        }),
      }),
    ),
    top_services: z.array(z.object({ service: z.string(), count: z.int().min(1) })),
    top_errors: z.array(z.object({ message: z.string(), count: z.int().min(1) })),
  })
  .meta({ id: 'AggregateAnswer' });

export type AggregateAnswer = z.infer<typeof aggregateAnswerSchema>;
