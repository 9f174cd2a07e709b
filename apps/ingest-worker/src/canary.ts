import { StoreError } from '@logpond/db/store-error';
import { BlockEncoder } from '@logpond/log-block/encode';
import { encodeSeq } from '@logpond/log-block/entry-id';
import { declareCounter, declareGauge } from '@logpond/runtime/metrics';
import { canaryProjectOf } from './canary-project.ts';
import { noteSurplus } from './complete.ts';
import { pause } from '@logpond/db/store-retry';
import type { Shard } from './shard.ts';

const TICK_MS = 1_000;
/** A canary that is not stored by then is missing; sooner where they come more often, but never before 5 s. */
const MISSING_MS = 60_000;
const MISSING_MIN_MS = 5_000;

/** An entry under way: sent at `startedAt` (`performance.now()`), unsent while it has no offset. */
type Canary = { startedAt: number; timeMs: number; offset: number | undefined; isMissing: boolean };

/**
 * Sends one entry of its own through the whole pipeline every `CANARY_INTERVAL_MS`, and looks for it in ClickHouse:
 * stored, and once. One at a time; the next is sent when that one has arrived.
 */
export async function keepCanary(shard: Shard): Promise<void> {
  const { deps, signal, cursor } = shard;
  const intervalMs = deps.canaryIntervalMs;
  if (intervalMs === 0) return;
  const missingMs = Math.min(MISSING_MS, Math.max(MISSING_MIN_MS, intervalMs));
  try {
    while (!signal.aborted) {
      const canary: Canary = {
        startedAt: performance.now(),
        timeMs: deps.now(),
        offset: undefined,
        isMissing: false,
      };
      while (!signal.aborted && !(await hasArrived(shard, canary))) {
        noteIfMissing(shard, canary, missingMs);
        await pause(Math.min(TICK_MS, intervalMs), signal);
      }
      await pause(canary.startedAt + intervalMs - performance.now(), signal);
    }
  } finally {
    canarySeconds.remove({ shard: cursor.shard });
  }
}

/** Sends it if that is still to be done, and tells whether it is stored. A store that fails means not yet. */
async function hasArrived(shard: Shard, canary: Canary): Promise<boolean> {
  const { cursor, deps, progress } = shard;
  try {
    canary.offset ??= await send(shard, canary);
    if (canary.offset === undefined || progress.done <= canary.offset) return false;
    const movedAt = progress.movedAt;
    const timeNs = BigInt(canary.timeMs) * 1_000_000n;
    const stored = await deps.store.countPlan({
      projectIds: [canaryProjectOf(cursor.shard, deps.redis.shards)],
      minTimeNs: timeNs,
      maxTimeNs: timeNs,
      shard: cursor.shard,
      seqFrom: encodeSeq(cursor.epoch, canary.offset),
      seqTo: encodeSeq(cursor.epoch, canary.offset + 1),
    });
    if (stored.entries === 0) return false;
    noteSurplus(shard, 1, stored, `canary ${canary.offset}`);
    canarySeconds.set({ shard: cursor.shard }, (movedAt - canary.startedAt) / 1_000);
    return true;
  } catch (error) {
    if (error instanceof StoreError) return false;
    throw error;
  }
}

/** Its offset; undefined when there is no room in the stream. */
async function send({ cursor, deps }: Shard, { timeMs }: Canary): Promise<number | undefined> {
  const encoder = new BlockEncoder();
  encoder.beginRun(canaryProjectOf(cursor.shard, deps.redis.shards), timeMs);
  encoder.appendEntry({
    timeNs: BigInt(timeMs) * 1_000_000n,
    level: 2,
    service: 'logpond',
    message: 'canary',
    metadataJson: JSON.stringify({ shard: cursor.shard }),
  });
  encoder.endRun(1);
  const admission = await deps.stream.admit(cursor.shard, encoder.finish(timeMs));
  return admission.kind === 'stored' ? admission.firstOffset : undefined;
}

function noteIfMissing({ cursor, log }: Shard, canary: Canary, missingMs: number): void {
  const ageMs = performance.now() - canary.startedAt;
  if (ageMs < missingMs) return;
  canarySeconds.set({ shard: cursor.shard }, ageMs / 1_000);
  if (canary.isMissing) return;
  canary.isMissing = true;
  missingCanaries.inc();
  const facts = { offset: canary.offset, ageMs: Math.round(ageMs) };
  log.error(
    facts,
    'the canary is missing: an entry that this worker sent itself cannot be found in ClickHouse',
  );
}

const canarySeconds = declareGauge('logpond_ingest_canary_seconds', {
  help: 'How long the last canary of a shard took to be stored, or how long a missing one is under way',
  labels: ['shard'],
});
const missingCanaries = declareCounter('logpond_ingest_canary_missing_total', {
  help: 'Canaries that were not stored in time (60 s)',
});
