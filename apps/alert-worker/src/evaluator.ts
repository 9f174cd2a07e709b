import { setImmediate as giveTurn } from 'node:timers/promises';
import type { AlertRange } from '@logpond/db/alert-cursor';
import { passFailpoint } from '@logpond/runtime/failpoint';
import { declareCounter } from '@logpond/runtime/metrics';
import { pause } from '@logpond/db/store-retry';
import { retry } from './retry.ts';
import type { AlertShard } from './shard.ts';
import { SkipReport } from './skip-report.ts';
import { StepBuilder } from './step-builder.ts';
import type { BuiltStep, Unread } from './step-builder.ts';

/** A range ends with the block that reaches one of them. */
const LIMITS = { rowsMax: 100_000, bytesMax: 16 * 1024 ** 2, rawBytesMax: 128 * 1024 ** 2 };
/** Pause between two reads at the end of the stream: what comes meanwhile is counted at once. */
const REST_MS = 100;
const TICK_MS = 1_000;
/** How often counters and place are written down while nobody is to be told of anything; a crash reads that much again. */
const WRITE_MS = 1_000;
/** Blocks that were received may be under way for this long: buckets are closed so much later. */
const LATE_MS = 5_000;
/** Evaluating longer without a turn of others, leases would lapse, and the other shards stand still. */
const TURN_MS = 50;
/** Within a range, what is counted is written down after each block that ends so long after the last time. */
const STEP_MS = 250;
/** Items of the outbox that wait for the queue; nothing more is counted then. */
const OUTBOX_WAITING_MAX = 10_000;
const OUTBOX_PAUSE_MS = 200;

/**
 * Counts one shard's entries into the windows of its rules, exactly once. The one place that writes steps.
 *
 *   wait -> read -> evaluate (in memory) -> count (fenced, one script) -> [ring the relay]
 *
 * A crash leaves the windows, the rules in force, the outbox and the place of the last step that was written, which
 * belong together; what lies behind that place is read again. A count whose outcome is unknown is repeated as it is.
 *
 * Returns when this owner was replaced.
 *
 * @throws {ShardGivenBack} when a step failed while stopping.
 */
export async function evaluateShard(shard: AlertShard): Promise<void> {
  const { windows, rules, clock, deps, signal } = shard;
  const skipReport = new SkipReport(shard.log, deps.elapsedMs);
  const builder = new StepBuilder(windows.place, {
    rules,
    nowMs: () => clock.read() ?? deps.now(),
    onUnread: (unread) => reportUnread(shard, unread),
    onSkipped: (skipped) => skipReport.add(skipped),
  });
  const evaluator = { shard, builder, restUntil: 0, nextTickAt: 0, writtenAt: performance.now() };
  while (!signal.aborted) {
    if (windows.outboxLength > OUTBOX_WAITING_MAX) {
      await waitForOutbox(shard);
    } else if (!(await goOn(evaluator))) return;
  }
}

/** Times by `performance.now()`. */
type Evaluator = {
  shard: AlertShard;
  builder: StepBuilder;
  restUntil: number;
  nextTickAt: number;
  writtenAt: number;
};

/** Evaluates what there is, or lets time pass. False: this owner was replaced, or stops amid what there is. */
async function goOn(evaluator: Evaluator): Promise<boolean> {
  const { shard, builder } = evaluator;
  const { cursor, signal, progress } = shard;
  const wait = async (): Promise<boolean> => cursor.waitForEntry(builder.place, TICK_MS);
  const isWaiting = await retry(shard, 'wait', wait);
  if (isWaiting) {
    await pause(evaluator.restUntil - performance.now(), signal);
    if (signal.aborted) return true;
    evaluator.restUntil = performance.now() + REST_MS;
    const range = await retry(shard, 'read', async () => cursor.read(builder.place, LIMITS));
    passFailpoint('E1.after');
    if (!(await evaluateRange(evaluator, range))) return false;
    // Far behind there is no rest.
    if (!range.isEnd) evaluator.restUntil = 0;
    progress.isAtEnd = range.isEnd;
  } else {
    progress.isAtEnd = true;
  }
  if (progress.isAtEnd && performance.now() >= evaluator.nextTickAt) {
    evaluator.nextTickAt = performance.now() + TICK_MS;
    const nowMs = shard.clock.read();
    // One block of an API whose clock is ahead must not end what fires in other projects: two clocks have to agree.
    if (nowMs !== undefined) builder.tick(Math.min(nowMs, shard.deps.now()) - LATE_MS);
  }
  const isUrgent = builder.settle();
  if (!isUrgent && performance.now() < evaluator.writtenAt + WRITE_MS) return true;
  return write(evaluator);
}

/** False: this owner was replaced, or stops; nothing may be written then, as it may stop amid a block. */
async function evaluateRange(evaluator: Evaluator, range: AlertRange): Promise<boolean> {
  const { shard, builder } = evaluator;
  let turnAt = performance.now();
  let stepAt = turnAt;
  for (const item of range.items) {
    const parts = builder.takeInTurns(item);
    for (let isEnd = false; !isEnd;) {
      isEnd = parts.next().done === true;
      if (performance.now() < turnAt + TURN_MS) continue;
      await giveTurn();
      turnAt = performance.now();
      if (shard.signal.aborted && !isEnd) return false;
    }
    noteTaken(shard, item);
    shard.progress.done = builder.place.done;
    if (!builder.isFull && performance.now() < stepAt + STEP_MS) continue;
    if (!(await write(evaluator))) return false;
    stepAt = performance.now();
    if (shard.signal.aborted) return false;
  }
  return true;
}

function noteTaken(shard: AlertShard, item: AlertRange['items'][number]): void {
  if ('block' in item) {
    const run = item.runs.at(-1);
    if (run !== undefined) see(shard, Number(run.receivedAtNs / 1_000_000n));
    readEntries.inc(item.rows);
  } else if (item.change === undefined) {
    shard.log.error({ number: item.number }, 'a change of rules cannot be read and is stepped over');
  }
}

function see({ progress, clock }: AlertShard, receivedAtMs: number): void {
  progress.receivedAtMs = receivedAtMs;
  clock.see(receivedAtMs);
}

/** Writes down what was evaluated; of an empty step only the place. False: replaced. */
async function write(evaluator: Evaluator): Promise<boolean> {
  const { shard, builder } = evaluator;
  const built = builder.finish() ?? describePlace(evaluator);
  if (built === undefined) return true;
  const { step, counted } = built;
  passFailpoint('E2.before');
  if (!(await retry(shard, 'count', async () => shard.windows.count(step)))) return false;
  passFailpoint('E2.after');
  evaluator.writtenAt = performance.now();
  countedEntries.inc(counted);
  if (step.outbox.length > 0) {
    for (const { kind } of step.outbox) transitions.inc({ kind });
    shard.bell.ring();
  }
  return true;
}

function describePlace({ shard, builder }: Evaluator): BuiltStep | undefined {
  const { place: to } = builder;
  const { place: from } = shard.windows;
  if (to.done === from.done && to.controls === from.controls) return undefined;
  return { counted: 0, step: { to, changes: [], resets: new Set(), windows: new Map(), outbox: [] } };
}

async function waitForOutbox(shard: AlertShard): Promise<void> {
  shard.progress.isAtEnd = false;
  heldSteps.inc();
  await pause(OUTBOX_PAUSE_MS, shard.signal);
  await retry(shard, 'outbox', async () => shard.windows.measureOutbox());
}

function reportUnread(shard: AlertShard, unread: Unread): void {
  unreadEntries.inc({ reason: unread.reason }, unread.rows);
  shard.log.error(unread, 'entries cannot be read and are stepped over');
}

const readEntries = declareCounter('logpond_alert_read_entries_total', {
  help: 'Entries that the alert worker went through',
});
const countedEntries = declareCounter('logpond_alert_counted_entries_total', {
  help: 'Entries that a rule matched; one that two rules match counts twice',
});
const transitions = declareCounter('logpond_alert_transitions_total', {
  help: 'Rules that fired, were told again or resolved',
  labels: ['kind'],
});
const unreadEntries = declareCounter('logpond_alert_unread_entries_total', {
  help: 'Entries that no rule could be asked about, as their block is damaged',
  labels: ['reason'],
});
const heldSteps = declareCounter('logpond_alert_held_steps_total', {
  help: 'Pauses of the evaluation because 10,000 notifications wait for the queue',
});
