import { parseDurationMs } from '@logpond/schema/duration';
import { formatTimestampNs, parseTimestampNs } from '@logpond/schema/timestamp';
import { CliError, EXIT } from './cli-error.ts';

/** What `search` and `tail` filter by; times are as the user wrote them. */
export type LogFilterOptions = {
  words: readonly string[];
  services: readonly string[];
  levels: readonly string[];
  fields: readonly (readonly [string, string])[];
  trace?: string | undefined;
  mode?: string | undefined;
  from?: string | undefined;
  to?: string | undefined;
};

/** The filter as query parameters of /logs and its siblings. Throws CliError (exit 2) for a time that is none. */
export function toQuery(filter: LogFilterOptions, nowMs: number): URLSearchParams {
  const query = new URLSearchParams();
  for (const service of filter.services) query.append('service', service);
  for (const level of filter.levels) query.append('level', level);
  for (const [path, value] of filter.fields) query.append(`metadata.${path}`, value);
  if (filter.words.length > 0) query.set('q', filter.words.join(' '));
  if (filter.mode && filter.words.length > 0) query.set('searchMode', filter.mode);
  if (filter.trace) query.set('traceId', filter.trace);
  if (filter.from) query.set('from', resolveTime(filter.from, nowMs));
  if (filter.to) query.set('to', resolveTime(filter.to, nowMs));
  return query;
}

/** A time as RFC 3339: one as it is, or a duration before now (`15m`). */
export function resolveTime(text: string, nowMs: number): string {
  const agoMs = parseDurationMs(text);
  if (agoMs !== undefined) return formatTimestampNs(BigInt(Math.max(0, nowMs - agoMs)) * 1_000_000n);
  if (/^\d{4}-\d\d-\d\d$/.test(text) && parseTimestampNs(`${text}T00:00:00Z`) !== undefined)
    return `${text}T00:00:00Z`;
  if (parseTimestampNs(text) !== undefined) return text;
  throw new CliError(
    EXIT.usage,
    `expected a time such as 2026-11-21T13:12:01Z or a duration such as 15m, got "${text}"`,
  );
}
