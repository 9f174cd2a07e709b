import type { AlertCursor } from '@logpond/db/alert-cursor';
import type { AlertHistory } from '@logpond/db/alert-history';
import type { AlertRules } from '@logpond/db/alert-rules';
import type { AlertWindows } from '@logpond/db/alert-windows';
import type { RedisStore } from '@logpond/db/connect';
import type { NotificationQueue } from '@logpond/db/notification-queue';
import type { RuleStream } from '@logpond/db/rule-stream';
import type { Log } from '@logpond/runtime/log';
import type { Bell } from './bell.ts';
import type { RuleSet } from './rule-set.ts';
import type { ShardClock } from './shard-clock.ts';

/** What the work on every shard shares. */
export type AlertDeps = {
  redis: RedisStore;
  queue: Pick<NotificationQueue, 'add'>;
  history: Pick<AlertHistory, 'insert'>;
  rules: Pick<AlertRules, 'listOfShard'>;
  ruleStream: Pick<RuleStream, 'publish'>;
  log: Log;
  /** Milliseconds since 1970. */
  now: () => number;
  /** Milliseconds since any moment; never goes back. */
  elapsedMs: () => number;
  /** How often the rules are compared with the control plane. */
  rulePollMs: number;
};

/** One shard while it is owned: what the evaluator, the relay and the others share. */
export type AlertShard = {
  deps: AlertDeps;
  log: Log;
  signal: AbortSignal;
  cursor: AlertCursor;
  windows: AlertWindows;
  rules: RuleSet;
  clock: ShardClock;
  progress: Progress;
  /** Rung when items were put into the outbox. */
  bell: Bell;
};

/** Where the evaluator stands; it alone changes this. */
type Progress = {
  /** Everything below is evaluated. */
  done: number;
  /** The stream ended there when it was last looked at. */
  isAtEnd: boolean;
  /** When the last block read was received, ms since 1970; undefined before the first. */
  receivedAtMs: number | undefined;
};
