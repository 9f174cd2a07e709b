import type { ClickHouseStore } from '@logpond/db/clickhouse';
import type { RedisStore } from '@logpond/db/connect';
import type { DeadLetters } from '@logpond/db/dead-letters';
import type { LogCursor, Ownership } from '@logpond/db/log-cursor';
import type { LogStore } from '@logpond/db/log-store';
import type { LogStream } from '@logpond/db/log-stream';
import type { Log } from '@logpond/runtime/log';
import type { FlushSettings, Pace } from './pace.ts';
import type { Turn } from './turn.ts';

/** What the work on every shard shares. */
export type WorkerDeps = {
  redis: RedisStore;
  clickhouse: ClickHouseStore;
  store: LogStore;
  stream: LogStream;
  deadLetters: DeadLetters;
  /** Retention class in days of a project, as it is now; undefined for one that is not there (any more). */
  findRetentionClass: (projectId: string) => Promise<number | undefined>;
  log: Log;
  now: () => number;
  flush: FlushSettings;
  auditAfterMs: number;
  /** 0: no canaries. */
  canaryIntervalMs: number;
};

/** One shard while it is owned: what the writer, the auditor and the canary share. */
export type Shard = {
  cursor: LogCursor;
  ownership: Ownership;
  deps: WorkerDeps;
  log: Log;
  signal: AbortSignal;
  pace: Pace;
  /** Held while rows of this shard are being inserted. */
  inserting: Turn;
  progress: Progress;
};

/** Where the writer stands; it alone changes this, but for the auditor's field. */
type Progress = {
  /** Everything below is stored. */
  done: number;
  /** When `done` last moved, by `performance.now()`. */
  movedAt: number;
  /** When the oldest entry in hand was received, by the wall clock; undefined when none is in hand. */
  oldestInHandMs: number | undefined;
  /** Plans that were never audited, as the auditor last saw it (its own field); undefined before. */
  unaudited?: number;
};
