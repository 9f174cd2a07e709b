import { declareCounter } from '@logpond/runtime/metrics';
import { ApiError } from '@logpond/schema/api-error';
import type { AggregateQuery, LogQuery } from '@logpond/schema/log-query';
import type { IngestFlush } from './ingest-flush.ts';
import { jitterRetryAfter } from './retry-after.ts';

const HOUR_MS = 3_600_000;
const DAY_NS = 86_400_000_000_000n;
/** Pressure is remembered for 5 s; asking sooner is in vain. */
const RETRY_AFTER_S = 5;

/** Searches that no index answers: they read every message of their range. */
export function isCostlySearch({ filter }: Pick<LogQuery, 'filter'>): boolean {
  return filter.text?.mode === 'substring' || filter.text?.mode === 'regex';
}

/** Counts over more than a day that the hourly roll-up cannot answer: they read every entry of their range. */
export function isCostlyAggregation(query: AggregateQuery): boolean {
  if (query.toNs - query.fromNs <= DAY_NS) return false;
  const { text, notTexts, traceId, metadata } = query.filter;
  const isPlain =
    text === undefined && traceId === undefined && notTexts.length === 0 && metadata.length === 0;
  return !isPlain || query.intervalMs % HOUR_MS !== 0;
}

/**
 * While the streams fill up the stores' time belongs to what was acknowledged.
 *
 * @throws {ApiError} UNAVAILABLE for a costly query under pressure.
 */
export function shedCostly(flush: Pick<IngestFlush, 'isPressed'>, isCostly: boolean): void {
  if (!isCostly || !flush.isPressed) return;
  shedQueries.inc();
  throw new ApiError('UNAVAILABLE', {
    public:
      'much waits to be stored, and this query reads every entry of its range; try later, or with searchMode=fulltext, a shorter range or whole hours',
    retryAfterS: jitterRetryAfter(RETRY_AFTER_S),
  });
}

const shedQueries = declareCounter('logpond_api_shed_queries_total', {
  help: 'Costly queries refused because the streams were filling up',
});
