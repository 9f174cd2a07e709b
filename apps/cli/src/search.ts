import { parseTimestampNs } from '@logpond/schema/timestamp';
import type { ApiAnswer } from './api-request.ts';
import { isRetryable, parseObject, requestApi, toRefusal } from './api-request.ts';
import { nextDelayMs, pause } from './back-off.ts';
import { CliError, EXIT } from './cli-error.ts';
import type { Connection } from './config.ts';
import { sliceArrayItems } from './slice-items.ts';

const PAGE_MAX = 1000;
const TRIES_MAX = 4;
const QUERY_TIMEOUT_MS = 60_000;
const COUNT_BUCKETS = 1000;
const DAY_MS = 86_400_000;
const RETENTION_MAX_DAYS = 3650;

/** A page of entries, each as the JSON text that the service wrote, in its order. */
export type SearchPage = {
  entries: string[];
  total: number;
  isTotalExact: boolean;
  nextCursor: string | undefined;
};

/** GET /logs once. Throws CliError. */
export async function searchPage(
  connection: Connection,
  query: URLSearchParams,
  signal?: AbortSignal,
): Promise<SearchPage> {
  const answer = await queryApi(connection, '/logs', query, signal);
  const page = parseObject(answer.body);
  const { total, totalRelation, nextCursor } = page;
  if (!Array.isArray(page['logs'])) {
    throw new CliError(
      EXIT.unreachable,
      `${connection.baseUrl}/logs answered without entries: is it Logpond?`,
    );
  }
  return {
    entries: sliceArrayItems(answer.body, 'logs'),
    total: typeof total === 'number' ? total : 0,
    isTotalExact: totalRelation === 'eq',
    nextCursor: typeof nextCursor === 'string' ? nextCursor : undefined,
  };
}

/** Pages of at most 1,000 entries until `limit` of them came (Infinity = all). Newest first. */
export async function* searchPages(
  connection: Connection,
  filter: URLSearchParams,
  limit: number,
  signal: AbortSignal,
): AsyncGenerator<string[]> {
  const query = new URLSearchParams(filter);
  for (let left = limit; left > 0;) {
    query.set('limit', String(Math.min(left, PAGE_MAX)));
    const page = await searchPage(connection, query, signal);
    yield page.entries;
    left -= page.entries.length;
    if (page.nextCursor === undefined || page.entries.length === 0) return;
    query.set('cursor', page.nextCursor);
  }
}

/** The exact number of entries of a filter, whatever it is: /logs counts to 10,000, beyond that the buckets of /logs/aggregated are added up. */
export async function countEntries(
  connection: Connection,
  filter: URLSearchParams,
  nowMs: number,
  signal: AbortSignal,
): Promise<number> {
  const first = new URLSearchParams(filter);
  first.set('limit', '1');
  const page = await searchPage(connection, first, signal);
  if (page.isTotalExact) return page.total;
  const answer = await queryApi(connection, '/logs/aggregated', toCountQuery(filter, nowMs), signal);
  const buckets = parseObject(answer.body)['timeseries'];
  let total = 0;
  for (const bucket of Array.isArray(buckets) ? (buckets as { total?: unknown }[]) : [])
    total += Number(bucket.total ?? 0);
  return total;
}

/** Bounds that hold every entry there can be, in at most about 1,000 buckets (3,652 for the longest range). */
function toCountQuery(filter: URLSearchParams, nowMs: number): URLSearchParams {
  const query = new URLSearchParams(filter);
  const oldest = new Date(nowMs - RETENTION_MAX_DAYS * DAY_MS).toISOString();
  const asked = parseTimestampNs(query.get('from') ?? oldest) ?? 0n;
  const from = asked > (parseTimestampNs(oldest) ?? 0n) ? (query.get('from') ?? oldest) : oldest;
  const to = query.get('to') ?? new Date(nowMs + DAY_MS).toISOString();
  const spanMs = Number((parseTimestampNs(to) ?? 0n) - (parseTimestampNs(from) ?? 0n)) / 1e6;
  const isLong = spanMs > COUNT_BUCKETS * DAY_MS;
  query.set('from', from);
  query.set('to', to);
  query.set('interval', isLong ? '1d' : `${Math.max(1, Math.ceil(spanMs / 1000 / COUNT_BUCKETS))}s`);
  return query;
}

async function queryApi(
  connection: Connection,
  path: string,
  query: URLSearchParams,
  signal?: AbortSignal,
): Promise<ApiAnswer> {
  for (let attempt = 0; ; attempt++) {
    const answer = await requestApi(connection, {
      path,
      query,
      timeoutMs: QUERY_TIMEOUT_MS,
      ...(signal ? { signal } : {}),
    });
    if (answer.status === 200) return answer;
    if (!isRetryable(answer.status) || attempt + 1 >= TRIES_MAX) throw toRefusal(connection, answer);
    await pause(nextDelayMs(attempt, answer.retryAfterMs), signal);
  }
}
