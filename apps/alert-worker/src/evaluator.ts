import type { AlertRange } from '@logpond/db/alert-cursor';
import { passFailpoint } from '@logpond/runtime/failpoint';
import { declareCounter } from '@logpond/runtime/metrics';
import { pause } from '@logpond/db/store-retry';
import { retry } from './retry.ts';
import type { AlertShard } from './shard.ts';
import { StepBuilder } from './step-builder.ts';
import type { BuiltStep, Unread } from './step-builder.ts';

/** A range ends with the block that reaches one of them. */
const LIMITS = { rowsMax: 100_000, bytesMax: 16 * 1024 ** 2, rawBytesMax: 128 * 1024 ** 2 };
/** Pause between two reads at the end of the stream: what comes meanwhile is counted at once. */
const REST_MS = 100;
const TICK_MS = 1_000;
/** How often the place is written down while nothing matches. */
const PLACE_MS = 1_000;
/** Blocks that were received may be under way for this long: buckets are closed so much later. */
const LATE_MS = 5_000;
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
  const builder = new StepBuilder(windows.place, {
    rules,
    nowMs: () => clock.read() ?? deps.now(),
    onUnread: (unread) => reportUnread(shard, unread),
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

/** Evaluates what there is, or lets time pass. False: this owner was replaced. */
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
    if (nowMs !== undefined) builder.tick(nowMs - LATE_MS);
  }
  return write(evaluator);
}

async function evaluateRange(evaluator: Evaluator, range: AlertRange): Promise<boolean> {
  const { shard, builder } = evaluator;
  for (const item of range.items) {
    builder.take(item);
    if ('block' in item) {
      const run = item.runs.at(-1);
      if (run !== undefined) see(shard, Number(run.receivedAtNs / 1_000_000n));
      readEntries.inc(item.rows);
    } else if (item.change === undefined) {
      shard.log.error({ number: item.number }, 'a change of rules cannot be read and is stepped over');
    }
    shard.progress.done = builder.place.done;
    if (builder.isFull && !(await write(evaluator))) return false;
  }
  return true;
}

function see({ progress, clock }: AlertShard, receivedAtMs: number): void {
  progress.receivedAtMs = receivedAtMs;
  clock.see(receivedAtMs);
}

/** Writes down what was evaluated; of an empty step only the place, and that not often. False: replaced. */
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

function describePlace({ shard, builder, writtenAt }: Evaluator): BuiltStep | undefined {
  const { place: to } = builder;
  const { place: from } = shard.windows;
  const isMoved = to.done !== from.done || to.controls !== from.controls;
  if (!isMoved || performance.now() < writtenAt + PLACE_MS) return undefined;
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
