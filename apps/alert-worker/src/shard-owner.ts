import { readWindowSpec } from '@logpond/alerting/window';
import { AlertCursor } from '@logpond/db/alert-cursor';
import { AlertWindows } from '@logpond/db/alert-windows';
import type { RuleInForce } from '@logpond/db/alert-windows';
import type { Ownership } from '@logpond/db/log-cursor';
import { readStreamEnd } from '@logpond/db/stream-end';
import type { Log } from '@logpond/runtime/log';
import { declareGauge } from '@logpond/runtime/metrics';
import { Bell } from './bell.ts';
import { evaluateShard } from './evaluator.ts';
import { writeHistory } from './history-writer.ts';
import { relayShard } from './relay.ts';
import { workTogether } from '@logpond/db/shard-work';
import { pause } from '@logpond/db/store-retry';
import { retry } from './retry.ts';
import { pollRules } from './rule-poll.ts';
import { RuleSet } from './rule-set.ts';
import { ShardClock } from './shard-clock.ts';
import type { AlertDeps, AlertShard } from './shard.ts';

const MEASURE_MS = 1_000;

/**
 * Everything that is done with a shard while it is owned: entries are counted, and beside that transitions are
 * carried to the queue of notifications, the history is brought to ClickHouse, and the rules are compared with the
 * control plane.
 *
 * Ends when the lease is lost or given back (`lost`), or when the evaluator finds that this owner was replaced.
 * Rejects with the first failure that is none of a store: a bug.
 */
export async function ownShard(ownership: Ownership, deps: AlertDeps, lost: AbortSignal): Promise<void> {
  const { shard: number, epoch, fence } = ownership;
  const log = deps.log.child({ shard: number, epoch });
  using cursor = await AlertCursor.open(deps.redis, ownership);
  const ended = new AbortController();
  const signal = AbortSignal.any([lost, ended.signal]);
  // A wait for entries ends at once.
  signal.addEventListener('abort', () => cursor[Symbol.dispose](), { once: true });
  const shard = await openShard({ ownership, deps, cursor, log, signal });
  log.info({ fence, ...shard.windows.place, rules: shard.rules.versions().size }, 'took a shard');
  const beside = [relayShard, writeHistory, pollRules, measureLag].map((work) => async () => work(shard));
  try {
    await workTogether(ended, async () => evaluateShard(shard), beside);
  } finally {
    lagEntries.remove({ shard: number });
    lagSeconds.remove({ shard: number });
  }
  log.info('gave a shard back');
}

/**
 * What is kept of a shard, as the owner before left it.
 *
 * @throws {StoreError} `unavailable`.
 */
export async function openShard(options: {
  ownership: Ownership;
  deps: AlertDeps;
  cursor: AlertCursor;
  log: Log;
  signal: AbortSignal;
}): Promise<AlertShard> {
  const { ownership, deps, cursor, log, signal } = options;
  const windows = await AlertWindows.open(deps.redis, ownership);
  const inForce = await windows.listRules();
  const rules = new RuleSet(inForce, (rule, error) =>
    log.error({ ruleId: rule.id, err: error }, 'a rule cannot be compiled and matches nothing'),
  );
  return {
    deps,
    log,
    signal,
    cursor,
    windows,
    rules,
    clock: new ShardClock({ elapsedMs: deps.elapsedMs, startMs: findLastTick(inForce) }),
    progress: { done: windows.place.done, isAtEnd: false, receivedAtMs: undefined },
    bell: new Bell(),
  };
}

/** Ticks move the clocks of the rules that fire, so the latest of them tells how far time had come, ms since 1970. */
function findLastTick(inForce: readonly RuleInForce[]): number | undefined {
  const clocks = inForce.flatMap(({ rule, fields: { state, clock } }) => {
    if (state !== 'firing' || clock === undefined) return [];
    return [Number(clock) * readWindowSpec(rule.condition).bucketS * 1_000];
  });
  return clocks.length === 0 ? undefined : Math.max(...clocks);
}

async function measureLag(shard: AlertShard): Promise<void> {
  const { deps, cursor, progress, signal } = shard;
  while (!signal.aborted) {
    const { next } = await retry(shard, 'measure', async () => readStreamEnd(deps.redis, cursor.shard));
    const entries = Math.max(0, next - progress.done);
    const { receivedAtMs } = progress;
    const ageMs = entries === 0 || receivedAtMs === undefined ? 0 : Math.max(0, deps.now() - receivedAtMs);
    lagEntries.set({ shard: cursor.shard }, entries);
    lagSeconds.set({ shard: cursor.shard }, ageMs / 1_000);
    await pause(MEASURE_MS, signal);
  }
}

const lagEntries = declareGauge('logpond_alert_lag_entries', {
  help: 'Entries of a shard that are acknowledged and that no rule was asked about yet',
  labels: ['shard'],
});
const lagSeconds = declareGauge('logpond_alert_lag_seconds', {
  help: 'How long ago the entry was received that was evaluated last, while others wait; else 0',
  labels: ['shard'],
});
