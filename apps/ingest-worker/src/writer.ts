import { setTimeout as delay } from 'node:timers/promises';
import { decodeBlock } from '@logpond/log-block/decode';
import type { DecodedBlock } from '@logpond/log-block/decode';
import { decodeSeq, encodeSeq } from '@logpond/log-block/entry-id';
import { encodeNativePlan } from '@logpond/log-block/native';
import type { NativePlan, PlanTarget } from '@logpond/log-block/native';
import { isAtLimit } from '@logpond/db/log-cursor';
import type { LogCursor, StreamRange } from '@logpond/db/log-cursor';
import type { LogStore, PlanRange } from '@logpond/db/log-store';
import { StoreError } from '@logpond/db/store-error';
import type { Log } from '@logpond/runtime/log';
import { declareCounter, declareHistogram } from '@logpond/runtime/metrics';
import { planRange, readPlan } from './plan.ts';
import type { Plan } from './plan.ts';

const WAIT_MS = 2_000;
/**
 * Inflated bytes of one insert at most (a block more). Repetitive entries shrink 200-fold in the stream, so the
 * stored bytes alone let a plan grow to gigabytes: a worker that died of one would die of it again for ever.
 */
const FLUSH_RAW_BYTES_MAX = 128 * 1024 * 1024;
/** How often a shard's stream is trimmed, whether entries come or not. */
const TRIM_MS = 1_000;
/** Repairs of one verification; then it begins anew after a pause. */
const REPAIRS_MAX = 3;
const BACKOFF_MIN_MS = 100;
const BACKOFF_MAX_MS = 5_000;
/** An insert has a fixed price, so a shard rests after one for this many times as long as it took … */
const REST_FACTOR = 10;
/** … but while few entries come, not for longer than this: somebody may be waiting for each of them. */
const FEW_ROWS = 1_000;
const REST_FEW_MS = 400;

export type WriterDeps = {
  store: LogStore;
  /** Retention class in days of a project, as it is now. */
  retentionClassOf: (projectId: string) => Promise<number>;
  log: Log;
  now: () => number;
  flush: { intervalMs: number; rowsMax: number; bytesMax: number };
};

/**
 * Carries one shard's entries from the stream into ClickHouse, exactly once. The one place that commits.
 *
 *   wait -> read -> plan (written down, fenced) -> insert -> [verify] -> commit (fenced) -> trim
 *
 * A crash leaves either no plan, and the next owner reads from `done`, or a plan, and the next owner
 * inserts the same rows under the same token and counts them before it commits. An insert that failed may
 * have been stored: it is never given up, only repeated.
 */
export async function writeShard(
  cursor: LogCursor,
  start: { done: number; plan: string | undefined },
  deps: WriterDeps,
  signal: AbortSignal,
): Promise<void> {
  const log = deps.log.child({ shard: cursor.shard, epoch: cursor.epoch });
  const shard = { cursor, deps, log, signal };
  let done = start.done;
  if (start.plan !== undefined) {
    const plan = readPlan(start.plan);
    log.info({ from: plan.from, to: plan.to }, 'going on with an inherited plan');
    const range = await retry(shard, 'read', async () => cursor.readPlanned(plan.from, plan.to));
    if (range === undefined || !(await carryOut(shard, start.plan, plan, range, true))) return;
    done = plan.to;
  }
  let notBefore = 0;
  let trimmedAt = 0;
  while (!signal.aborted) {
    if (performance.now() - trimmedAt > TRIM_MS) {
      await retry(shard, 'trim', async () => cursor.trim(deps.now()), 1);
      trimmedAt = performance.now();
    }
    const isWaiting = await retry(shard, 'wait', async () => cursor.waitForBlock(done, WAIT_MS));
    if (isWaiting !== true) continue;
    await sleepUntil(notBefore, signal);
    const startedAt = performance.now();
    const next = await writeNext(shard, done);
    if (next === undefined) return;
    done = next.to;
    const restMax =
      next.rows < FEW_ROWS ? Math.min(REST_FEW_MS, deps.flush.intervalMs) : deps.flush.intervalMs;
    const costMs = performance.now() - startedAt;
    notBefore = next.isFull ? 0 : startedAt + Math.min(costMs * REST_FACTOR, restMax);
  }
}

type Shard = { cursor: LogCursor; deps: WriterDeps; log: Log; signal: AbortSignal };

/** Reads, plans and stores what lies at `done`. Undefined: this owner was replaced or is stopping. */
async function writeNext(
  shard: Shard,
  done: number,
): Promise<{ to: number; rows: number; isFull: boolean } | undefined> {
  const { cursor, deps } = shard;
  const { rowsMax, bytesMax } = deps.flush;
  const limits = { rowsMax, bytesMax, rawBytesMax: FLUSH_RAW_BYTES_MAX };
  const range = await retry(shard, 'read', async () => cursor.read(done, limits));
  if (range === undefined || shard.signal.aborted) return undefined;
  if (range.rows === 0) return { to: done, rows: 0, isFull: false };
  const planned = await retry(shard, 'plan', async () => planRange(range, deps.retentionClassOf, deps.now()));
  if (planned === undefined) return undefined;
  const text = JSON.stringify(planned);
  // After a lost answer the plan may be there already; the script refuses a second one, and the shard is
  // given back: its next owner finds the plan and carries it out.
  if ((await retry(shard, 'plan', async () => cursor.writePlan(done, text), 1)) !== true) return undefined;
  if (!(await carryOut(shard, text, planned, range, false))) return undefined;
  return { to: range.to, rows: range.rows, isFull: isAtLimit(range, limits) };
}

/** Insert, verify, commit. False: this owner was replaced or is stopping, and the plan stays for the next. */
async function carryOut(
  shard: Shard,
  planText: string,
  plan: Plan,
  range: StreamRange,
  isInherited: boolean,
): Promise<boolean> {
  const { cursor, deps, log } = shard;
  const startedAt = performance.now();
  const parts = range.blocks.map(({ block, firstOffset }) => ({ block: decodeBlock(block), firstOffset }));
  const token = `${cursor.shard}:${cursor.epoch}:${plan.from}-${plan.to}`;
  const target: PlanTarget = {
    epoch: cursor.epoch,
    shard: cursor.shard,
    retentionClassOf: (projectId) => plan.retention[projectId] ?? 0,
    keepRow: (timeNs, projectId) => timeNs >= oldestNs(plan, projectId),
  };
  const rows = encodeNativePlan(parts, target);
  let attempts = 0;
  const inserted = await retry(shard, 'insert', async () => {
    attempts += 1;
    if (rows.rows > 0) await deps.store.insertPlan(rows.chunks, token, rows.rows);
    return true;
  });
  if (inserted !== true) return false;
  if (rows.rows > 0 && (attempts > 1 || isInherited)) {
    const planned = describePlan(shard, plan, parts);
    const encodeMissing = (onlyOffsets: ReadonlySet<number>): NativePlan =>
      encodeNativePlan(parts, { ...target, onlyOffsets });
    const verify = async (): Promise<true> => repair(shard, planned, rows.rows, token, encodeMissing);
    if ((await retry(shard, 'verify', verify)) !== true) return false;
  }
  const receivedAtMs = Number((parts.at(-1)?.block.receivedAtNs ?? 0n) / 1_000_000n);
  const committed = await retry(shard, 'commit', async () =>
    cursor.commit(planText, plan.to, range.bytes, receivedAtMs),
  );
  if (committed !== true) return false;
  expiredEntries.inc(rows.expired);
  storedEntries.inc(rows.rows);
  flushSeconds.observe((performance.now() - startedAt) / 1_000);
  log.info({ rows: rows.rows, expired: rows.expired, bytes: range.bytes, attempts, plan: token }, 'flushed');
  return true;
}

const DAY_NS = 86_400_000_000_000n;

/** Rows older than their retention class when they were planned are past their life already. */
function oldestNs(plan: Plan, projectId: string): bigint {
  return BigInt(plan.atMs) * 1_000_000n - BigInt(plan.retention[projectId] ?? 0) * DAY_NS;
}

function describePlan(shard: Shard, plan: Plan, parts: readonly { block: DecodedBlock }[]): PlanRange {
  const runs = parts.flatMap(({ block }) => block.runs);
  const { cursor } = shard;
  return {
    projectIds: [...new Set(runs.map((run) => run.projectId))],
    minTimeNs: runs.reduce(
      (least, run) => (run.minTimeNs < least ? run.minTimeNs : least),
      runs[0]?.minTimeNs ?? 0n,
    ),
    maxTimeNs: runs.reduce((most, run) => (run.maxTimeNs > most ? run.maxTimeNs : most), 0n),
    shard: cursor.shard,
    seqFrom: encodeSeq(cursor.epoch, plan.from),
    seqTo: encodeSeq(cursor.epoch, plan.to),
  };
}

/**
 * Counts what is stored of a plan and inserts what is missing, under a token of its own. The token alone
 * is a hint: a deduplication window can be exceeded, and a server can be wrong. So a repair that was accepted
 * and still is not there gets the next token: the server would ignore other rows under one that it knows.
 */
async function repair(
  shard: Shard,
  range: PlanRange,
  expected: number,
  token: string,
  encodeMissing: (onlyOffsets: ReadonlySet<number>) => NativePlan,
): Promise<true> {
  const { store } = shard.deps;
  const count = await store.countPlan(range);
  if (count === expected) return true;
  if (count > expected) {
    surplusEntries.inc(count - expected);
    shard.log.error({ expected, count, plan: token }, 'more entries are stored than were acknowledged');
    return true;
  }
  let stored = count;
  for (let repairs = 1; repairs <= REPAIRS_MAX; repairs += 1) {
    const rows = encodeMissing(await findMissing(store, range));
    const facts = { expected, count: stored, missing: rows.rows, plan: token, repairs };
    shard.log.warn(facts, 'repairing a plan that is stored in part');
    await store.insertPlan(rows.chunks, `${token}#r${repairs}`, rows.rows);
    stored = await store.countPlan(range);
    if (stored < expected) continue;
    repairedEntries.inc(expected - count);
    return true;
  }
  const message = `expected ${expected} entries stored after ${REPAIRS_MAX} repairs, got ${stored}`;
  throw new StoreError('clickhouse', 'unavailable', message);
}

/** Offsets of a plan that ClickHouse does not hold. */
async function findMissing(store: LogStore, range: PlanRange): Promise<Set<number>> {
  const present = await store.listPlanOffsets(range);
  const missing = new Set<number>();
  const { offset: from } = decodeSeq(range.seqFrom);
  const { offset: to } = decodeSeq(range.seqTo);
  for (let offset = from; offset < to; offset += 1) if (!present.has(offset)) missing.add(offset);
  return missing;
}

/**
 * Repeats a step until it succeeds, with growing pauses: a store that fails says nothing about the outcome.
 * Undefined: it failed and the shard is to be given back, or the tries are used up. A step that succeeds is
 * not cut off by the stop of the process, so that what is in hand is committed.
 */
async function retry<T>(
  shard: Shard,
  step: string,
  run: () => Promise<T>,
  triesMax = Infinity,
): Promise<T | undefined> {
  let pauseMs = BACKOFF_MIN_MS;
  for (let tries = 1; ; tries += 1) {
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      if (shard.signal.aborted) return undefined;
      failedSteps.inc({ step });
      shard.log.warn({ err: error, step, tries }, 'a step failed');
    }
    if (tries >= triesMax) return undefined;
    await sleep(pauseMs * (0.5 + Math.random() / 2), shard.signal);
    pauseMs = Math.min(pauseMs * 2, BACKOFF_MAX_MS);
  }
}

async function sleepUntil(at: number, signal: AbortSignal): Promise<void> {
  const ms = at - performance.now();
  if (ms > 0) await sleep(ms, signal);
}

async function sleep(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => {});
}

const storedEntries = declareCounter('logpond_ingest_stored_entries_total', {
  help: 'Entries stored in ClickHouse',
});
const expiredEntries = declareCounter('logpond_ingest_expired_entries_total', {
  help: 'Entries that had passed their retention before they could be stored',
});
const repairedEntries = declareCounter('logpond_ingest_repaired_entries_total', {
  help: 'Entries that an insert had left out and a verification put in',
});
const surplusEntries = declareCounter('logpond_ingest_surplus_entries_total', {
  help: 'Entries found stored more than once; must stay 0',
});
const failedSteps = declareCounter('logpond_ingest_failed_steps_total', {
  help: 'Steps that failed and were tried again',
  labels: ['step'],
});
const flushSeconds = declareHistogram('logpond_ingest_flush_seconds', {
  help: 'From the plan to its commit',
});
