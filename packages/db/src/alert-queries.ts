import { setTimeout as sleep } from 'node:timers/promises';
import type { MatchableRule } from '@logpond/alerting/matcher';
import { FUTURE_MAX_S } from '@logpond/alerting/window';
import type { CountItem } from '@logpond/alerting/window';
import { decodeSeq, encodeEntryId } from '@logpond/log-block/entry-id';
import { parseDurationMs } from '@logpond/schema/duration';
import type { Level } from '@logpond/schema/log-entry';
import { formatTimestampNs } from '@logpond/schema/timestamp';
import { matchRule } from './alert-sql.ts';
import type { BoundQuery, ClickHouseStore } from './clickhouse.ts';
import { scopeEntries } from './log-sql.ts';
import type { ReadScope } from './log-sql.ts';
import { SqlBindings } from './sql-bindings.ts';
import { StoreError } from './store-error.ts';

/** Pairs of buckets of one answer; about 30 MB of it. */
const COUNTS_MAX = 500_000;
const SAMPLES_MAX = 100;
const SAMPLES_TIMEOUT_MS = 1000;
/** Characters of a message in a sample. */
const SAMPLE_MESSAGE_MAX = 1000;

/** Received-at in [fromS, toS), in seconds since 1970; `bucketS` as in the rule's WindowSpec. */
export type CountRange = { fromS: number; toS: number; bucketS: number };

/** An entry that a rule matched; `message` is cut to 1,000 characters, `time` as the API writes it. */
export type SampleEntry = { id: string; time: string; level: Level; service: string; message: string };

type CountRow = { receivedSecond: string; second: string; entries: string };
type SampleRow = {
  timeNs: string;
  seqText: string;
  shard: number;
  level: Level;
  service: string;
  message: string;
};

/** What rules match among the stored entries of one project. */
export class AlertQueries {
  readonly #clickhouse: ClickHouseStore;

  /** Retention is in every scope. */
  constructor(clickhouse: ClickHouseStore) {
    this.#clickhouse = clickhouse;
  }

  /**
   * Counts of matching entries per bucket in which they were received and bucket into which a window counts them
   * (each told by its start), ordered by the first: what `replayWindow` takes. Entries ahead of their reception by
   * more than a minute are left out here, to the second; those older than the window partly, and by the window.
   *
   * @throws {StoreError} `too_expensive` (also beyond 500,000 pairs), `invalid_query`, `unavailable`.
   */
  async countBuckets(scope: ReadScope, rule: MatchableRule, range: CountRange): Promise<CountItem[]> {
    const rows = await this.#clickhouse.readTenant<CountRow>(
      scope.projectId,
      buildCountBuckets(scope, rule, range),
    );
    if (rows.length > COUNTS_MAX) {
      throw new StoreError(
        'clickhouse',
        'too_expensive',
        `expected at most ${COUNTS_MAX} pairs of buckets, got more`,
      );
    }
    return rows.map(({ receivedSecond, second, entries }) => ({
      second: Number(second),
      receivedSecond: Number(receivedSecond),
      count: Number(entries),
    }));
  }

  /**
   * The newest matching entries with a time in [fromMs, toMs], at most `limit` (1 to 100).
   *
   * @throws {StoreError} `too_expensive` after one second, `invalid_query`, `unavailable`.
   */
  async samples(
    scope: ReadScope,
    rule: MatchableRule,
    range: { fromMs: number; toMs: number; limit: number },
  ): Promise<SampleEntry[]> {
    const ended = new AbortController();
    const query = buildSamples(scope, rule, range);
    try {
      const rows = await Promise.race([
        this.#clickhouse.readTenant<SampleRow>(scope.projectId, query),
        giveUp(ended.signal),
      ]);
      return rows.map(toSample);
    } finally {
      ended.abort();
    }
  }
}

/** The query itself goes on to the engine's own limit of 10 s. */
async function giveUp(signal: AbortSignal): Promise<never> {
  // Aborted, it rejects when the race is over, which nobody hears.
  await sleep(SAMPLES_TIMEOUT_MS, undefined, { signal });
  throw new StoreError('clickhouse', 'too_expensive', `expected samples within ${SAMPLES_TIMEOUT_MS} ms`);
}

function toSample({ timeNs, seqText, shard, level, service, message }: SampleRow): SampleEntry {
  const ns = BigInt(timeNs);
  const id = encodeEntryId(ns, { shard, ...decodeSeq(BigInt(seqText)) });
  return { id, time: formatTimestampNs(ns), level, service, message };
}

function buildCountBuckets(scope: ReadScope, rule: MatchableRule, range: CountRange): BoundQuery {
  const { fromS, toS, bucketS } = range;
  const bindings = new SqlBindings();
  // The buckets that touch a window are at most two longer than it.
  const reachS = Math.ceil((parseDurationMs(rule.condition.timeWindow) ?? 0) / 1000) + 2 * bucketS;
  const times = {
    fromNs: BigInt(fromS - reachS) * 1_000_000_000n,
    toNs: BigInt(toS + FUTURE_MAX_S) * 1_000_000_000n,
  };
  const [from, to, width, reach, ahead] = [fromS, toS, bucketS, reachS, FUTURE_MAX_S].map((seconds) =>
    bindings.bind('Int64', String(seconds)),
  );
  const sql = `SELECT intDiv(received, ${width}) * ${width} AS receivedSecond,
      intDiv(least(at, received), ${width}) * ${width} AS second, count() AS entries
    FROM (
      SELECT intDiv(toUnixTimestamp64Nano(time), 1000000000) AS at,
        intDiv(toUnixTimestamp64Milli(received_at), 1000) AS received
      FROM logs WHERE ${scopeEntries(bindings, scope, times)}
        AND received_at >= fromUnixTimestamp64Milli(${from} * 1000, 'UTC')
        AND received_at < fromUnixTimestamp64Milli(${to} * 1000, 'UTC')
        AND ${matchRule(bindings, rule)}
    )
    WHERE at <= received + ${ahead} AND at >= received - ${reach}
    GROUP BY receivedSecond, second ORDER BY receivedSecond, second LIMIT ${COUNTS_MAX + 1}`;
  return { sql, params: bindings.params, resultRowsMax: COUNTS_MAX + 1 };
}

function buildSamples(
  scope: ReadScope,
  rule: MatchableRule,
  { fromMs, toMs, limit }: { fromMs: number; toMs: number; limit: number },
): BoundQuery {
  const bindings = new SqlBindings();
  const rows = Math.min(Math.max(1, Math.trunc(limit)), SAMPLES_MAX);
  const times = {
    fromNs: BigInt(Math.trunc(fromMs)) * 1_000_000n,
    toNs: BigInt(Math.trunc(toMs)) * 1_000_000n + 999_999n,
  };
  const sql = `SELECT toUnixTimestamp64Nano(time) AS timeNs, toString(seq) AS seqText, shard, level, service,
      substringUTF8(message, 1, ${SAMPLE_MESSAGE_MAX}) AS message
    FROM logs WHERE ${scopeEntries(bindings, scope, times)} AND ${matchRule(bindings, rule)}
    ORDER BY time DESC, seq DESC LIMIT ${rows}`;
  return { sql, params: bindings.params, resultRowsMax: rows };
}
