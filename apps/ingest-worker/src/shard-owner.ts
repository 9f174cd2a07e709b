import { LogCursor } from '@logpond/db/log-cursor';
import type { Ownership } from '@logpond/db/log-cursor';
import { readStreamEnd } from '@logpond/db/stream-end';
import { passFailpoint } from '@logpond/runtime/failpoint';
import { declareGauge } from '@logpond/runtime/metrics';
import { auditShard } from './auditor.ts';
import { keepCanary } from './canary.ts';
import { Pace } from './pace.ts';
import { workTogether } from '@logpond/db/shard-work';
import { pause } from '@logpond/db/store-retry';
import { retry } from './retry.ts';
import type { Shard, WorkerDeps } from './shard.ts';
import { Turn } from './turn.ts';
import { writeShard } from './writer.ts';

/** How often a shard's stream is trimmed, whether entries come or not. */
const TRIM_MS = 1_000;
/** From here on projects are told to wait (admit.lua), and somebody should know why; said once a minute. */
const CROWDED_SHARE = 0.6;
const WARNING_MS = 60_000;

/**
 * Everything that is done with a shard while it is owned: entries are written, and beside that the stream is trimmed
 * (also while an insert is repeated because ClickHouse is away: what was stored before must make room), what was
 * committed is audited, and a canary is sent.
 *
 * Ends when the lease is lost or given back (`lost`), or when the writer finds that this owner was replaced; what is
 * in hand is finished first. Rejects with the first failure that is none of a store: a bug.
 */
export async function ownShard(ownership: Ownership, deps: WorkerDeps, lost: AbortSignal): Promise<void> {
  passFailpoint('W1.after');
  using cursor = await LogCursor.open(deps.redis, ownership);
  const ended = new AbortController();
  const signal = AbortSignal.any([lost, ended.signal]);
  // A wait for entries ends at once.
  signal.addEventListener('abort', () => cursor[Symbol.dispose](), { once: true });
  const { shard: number, epoch, fence, done, isDraining } = ownership;
  const log = deps.log.child({ shard: number, epoch });
  log.info({ fence, done, isDraining }, 'took a shard');
  const shard: Shard = {
    cursor,
    ownership,
    deps,
    log,
    signal,
    pace: new Pace(deps.flush),
    inserting: new Turn(),
    progress: { done, movedAt: performance.now(), oldestInHandMs: undefined },
  };
  const beside = [keepTrimmed, auditShard, keepCanary].map((work) => async () => work(shard));
  try {
    await workTogether(ended, async () => writeShard(shard), beside);
  } finally {
    streamBytes.remove({ shard: number });
    backlogEntries.remove({ shard: number });
    backlogSeconds.remove({ shard: number });
  }
  log.info('gave a shard back');
}

async function keepTrimmed(shard: Shard): Promise<void> {
  const { cursor, deps, signal, progress } = shard;
  let nextWarningAt = 0;
  while (!signal.aborted) {
    const stream = await retry(shard, 'trim', async () => cursor.trim(deps.now()));
    streamBytes.set({ shard: cursor.shard }, stream.heldBytes);
    if (stream.share > CROWDED_SHARE && performance.now() >= nextWarningAt) {
      shard.log.error(
        stream,
        'the stream fills up: nothing is dropped that its slowest consumer has not read',
      );
      nextWarningAt = performance.now() + WARNING_MS;
    }
    passFailpoint('W7.after');
    const { next } = await retry(shard, 'trim', async () => readStreamEnd(deps.redis, cursor.shard));
    const oldestMs = progress.oldestInHandMs;
    backlogEntries.set({ shard: cursor.shard }, Math.max(0, next - progress.done));
    backlogSeconds.set({ shard: cursor.shard }, oldestMs === undefined ? 0 : (deps.now() - oldestMs) / 1_000);
    await pause(TRIM_MS, signal);
  }
}

const streamBytes = declareGauge('logpond_ingest_stream_bytes', {
  help: 'Bytes that a shard’s stream holds: what waits, and what may still be replayed',
  labels: ['shard'],
});
const backlogEntries = declareGauge('logpond_ingest_backlog_entries', {
  help: 'Entries of a shard that are acknowledged and not yet stored',
  labels: ['shard'],
});
const backlogSeconds = declareGauge('logpond_ingest_backlog_seconds', {
  help: 'Age of the oldest entry that a shard has in hand; 0 when it has none',
  labels: ['shard'],
});
