import type { SkippedAsks } from '@logpond/alerting/pattern-allowance';
import { BlockError } from '@logpond/log-block/layout';
import type { RunSummary } from '@logpond/log-block/layout';
import type { AlertPlace } from '@logpond/db/alert-cursor';
import type { CountStep, OutboxItem, WindowFields } from '@logpond/db/alert-windows';
import type { RuleChange } from '@logpond/db/rule-change';
import type { StreamBlock, StreamControl } from '@logpond/db/stream-block';
import { BlockReader } from './block-reader.ts';
import type { ProjectRules, RuleSet } from './rule-set.ts';
import { ProjectTally } from './tally.ts';
import type { WatchedRule } from './watched-rule.ts';

/** A step is written down when it has grown to one of them; what one block adds comes on top. */
const WINDOWS_MAX = 5_000;
const OUTBOX_MAX = 1_000;
const CHANGES_MAX = 1_000;
/** Sums that wait for their windows at most. */
const CELLS_MAX = 20_000;
/** Entries wait for their windows no longer than until later ones were received this much after them. */
const TALLY_SPAN_S = 2;

const SECOND_NS = 1_000_000_000n;

/** Entries that no rule can be asked about, and why. */
export type Unread = { reason: 'header' | 'columns'; firstOffset: number; rows: number; error: string };

/** What the patterns of a project were not asked about. */
export type Skipped = SkippedAsks & { projectId: string };

/** What a step amounts to, beside what is written down. */
export type BuiltStep = { step: CountStep; counted: number };

/**
 * Evaluates the stream, item by item in its order, into steps: matching entries go into the windows of the rules,
 * changes of rules apply to what comes after them, transitions make items for the outbox. Nothing is written here.
 */
export class StepBuilder {
  readonly #rules: RuleSet;
  readonly #onUnread: (unread: Unread) => void;
  readonly #onSkipped: (skipped: Skipped) => void;
  /** What time it is for firings that end because their rule does. */
  readonly #nowMs: () => number;
  #to: AlertPlace;
  readonly #tallies = new Map<string, ProjectTally>();
  /** By the rule's id: the window that is in force at the end of the step. */
  readonly #touched = new Map<string, WatchedRule>();
  readonly #resets = new Set<string>();
  #changes: RuleChange[] = [];
  #outbox: OutboxItem[] = [];
  #counted = 0;
  #isAmidBlock = false;

  constructor(
    from: AlertPlace,
    options: {
      rules: RuleSet;
      nowMs: () => number;
      onUnread: (unread: Unread) => void;
      onSkipped?: (skipped: Skipped) => void;
    },
  ) {
    this.#to = { ...from };
    this.#rules = options.rules;
    this.#nowMs = options.nowMs;
    this.#onUnread = options.onUnread;
    this.#onSkipped = options.onSkipped ?? (() => {});
  }

  /** Up to where everything is evaluated. */
  get place(): AlertPlace {
    return this.#to;
  }

  /** The step must be written down before more is taken. */
  get isFull(): boolean {
    const { size } = this.#touched;
    return size >= WINDOWS_MAX || this.#outbox.length >= OUTBOX_MAX || this.#changes.length >= CHANGES_MAX;
  }

  /** Evaluates what lies next in the stream. */
  take(item: StreamBlock | StreamControl): void {
    const turns = this.takeInTurns(item);
    while (turns.next().done !== true);
  }

  /**
   * The same in parts of some 20 ms as a rule: between them others may have a turn, but nothing may be asked of the
   * builder. What was begun and is not brought to its end makes the builder useless.
   */
  *takeInTurns(item: StreamBlock | StreamControl): Generator<undefined> {
    if ('block' in item) {
      this.#isAmidBlock = true;
      yield* this.#takeBlock(item);
      this.#isAmidBlock = false;
      this.#to = { ...this.#to, done: item.firstOffset + item.rows };
      return;
    }
    if (item.change !== undefined) this.#takeChange(item.change);
    this.#to = { ...this.#to, controls: item.number };
  }

  /** Lets time pass for the rules that fire, and reminds of them. @param nowMs of the rules' clock. */
  tick(nowMs: number): void {
    this.#fillWindows();
    for (const rule of this.#rules.firing()) {
      // The rest has its turn at the next tick.
      if (this.#outbox.length >= OUTBOX_MAX) return;
      this.#outbox.push(...rule.tick(nowMs));
      this.#touched.set(rule.rule.id, rule);
    }
  }

  /**
   * Puts what was counted into the windows. True when that must be written down now: somebody is to be told, or rules
   * changed. The rest may wait for more; until it is written it is read again after a crash.
   */
  settle(): boolean {
    this.#fillWindows();
    return this.#outbox.length > 0 || this.#changes.length > 0 || this.isFull;
  }

  /** What is to be written down since the last call. Undefined: nothing but how far the stream was read. */
  finish(): BuiltStep | undefined {
    // Its first part would be counted again with the rest.
    if (this.#isAmidBlock) throw new Error('expected the block taken to its end, got a step amid it');
    this.#fillWindows();
    const windows = new Map<string, WindowFields>();
    for (const [id, rule] of this.#touched) {
      const fields = rule.takeChanges();
      if (fields !== undefined) windows.set(id, fields);
    }
    const step = {
      to: this.#to,
      changes: this.#changes,
      resets: new Set(this.#resets),
      windows,
      outbox: this.#outbox,
    };
    const counted = this.#counted;
    this.#touched.clear();
    this.#resets.clear();
    this.#changes = [];
    this.#outbox = [];
    this.#counted = 0;
    const isEmpty = step.changes.length + step.resets.size + windows.size + step.outbox.length === 0;
    return isEmpty ? undefined : { step, counted };
  }

  #takeChange(change: RuleChange): void {
    const projectId = change.op === 'put' ? change.rule.projectId : change.projectId;
    this.#fillProject(projectId);
    const applied = this.#rules.apply(change);
    if (applied === undefined) return;
    this.#changes.push(change);
    const { dropped, current } = applied;
    if (dropped !== undefined) {
      const { id } = dropped.rule;
      const end = dropped.end(this.#nowMs());
      if (end !== undefined) this.#outbox.push(end);
      this.#resets.add(id);
      this.#touched.delete(id);
      if (current !== undefined) this.#touched.set(id, current);
    }
  }

  *#takeBlock(block: StreamBlock): Generator<undefined> {
    const { firstOffset, rows, damage } = block;
    if (damage !== undefined) {
      this.#onUnread({ reason: 'header', firstOffset, rows, error: damage });
      return;
    }
    let reader: BlockReader | undefined;
    let from = 0;
    for (const [index, run] of block.runs.entries()) {
      const rules = this.#rules.ofProject(run.projectId);
      if (rules !== undefined) {
        reader ??= new BlockReader(block);
        yield* this.#countRun({ run, index, from, rules, reader, firstOffset });
      }
      from += run.rows;
    }
    if (reader !== undefined) this.#fillWhenDue();
  }

  *#countRun(part: RunPart): Generator<undefined> {
    const { run, index, rules, reader } = part;
    const { matcher } = rules;
    const tally = this.#openTally(run.projectId, rules);
    const receivedSecond = toSecond(run.receivedAtNs);
    const digest = matcher.needsDigest ? reader.readDigest(index, run.rows) : [];
    for (const { level, service, second, count } of digest ?? []) {
      const matches = matcher.matchDigest(level, service, count);
      if (matches.length > 0) tally.addAlike(matches, { second, receivedSecond, count });
    }
    if (digest === undefined || matcher.needsColumns)
      yield* this.#countRows(part, tally, digest === undefined);
    const skipped = matcher.takeSkipped();
    if (skipped !== undefined) this.#onSkipped({ projectId: run.projectId, ...skipped });
  }

  *#countRows(part: RunPart, tally: ProjectTally, isAll: boolean): Generator<undefined> {
    const { run, from, reader, firstOffset } = part;
    const { matcher } = part.rules;
    const receivedSecond = toSecond(run.receivedAtNs);
    const to = from + run.rows;
    try {
      const columns = reader.readColumns();
      const second = oneSecond(run);
      const onMatch = (ruleIndex: number, row: number): void =>
        tally.addMatch(ruleIndex, second ?? columns.second(row), receivedSecond);
      if (isAll) yield* matcher.matchAllRowsInTurns(columns, from, to, onMatch);
      else yield* matcher.matchRowsInTurns(columns, from, to, onMatch);
    } catch (error) {
      if (!(error instanceof BlockError)) throw error;
      const { rows } = run;
      this.#onUnread({ reason: 'columns', firstOffset: firstOffset + from, rows, error: error.message });
    }
  }

  #openTally(projectId: string, rules: ProjectRules): ProjectTally {
    let tally = this.#tallies.get(projectId);
    if (tally === undefined) {
      tally = new ProjectTally(rules);
      this.#tallies.set(projectId, tally);
    }
    return tally;
  }

  #fillWhenDue(): void {
    let cells = 0;
    let rules = this.#touched.size;
    let spanS = 0;
    for (const tally of this.#tallies.values()) {
      cells += tally.cells;
      rules += tally.touchedRules;
      spanS = Math.max(spanS, tally.spanS);
    }
    if (cells >= CELLS_MAX || rules >= WINDOWS_MAX || spanS >= TALLY_SPAN_S) this.#fillWindows();
  }

  #fillWindows(): void {
    for (const projectId of this.#tallies.keys()) this.#fillProject(projectId);
  }

  /** Puts what waits of a project into the windows of its rules. */
  #fillProject(projectId: string): void {
    const tally = this.#tallies.get(projectId);
    if (tally === undefined) return;
    this.#tallies.delete(projectId);
    for (const { rule, counted } of tally.sum()) {
      const items = rule.count(counted);
      if (items.length > 0) this.#outbox.push(...items);
      this.#touched.set(rule.rule.id, rule);
      this.#counted += counted.count;
    }
  }
}

type RunPart = {
  run: RunSummary;
  index: number;
  from: number;
  rules: ProjectRules;
  reader: BlockReader;
  firstOffset: number;
};

function toSecond(ns: bigint): number {
  return Number(ns / SECOND_NS);
}

/** The second that all entries of a run share; undefined when they do not. */
function oneSecond({ minTimeNs, maxTimeNs }: RunSummary): number | undefined {
  const second = toSecond(minTimeNs);
  return second === toSecond(maxTimeNs) ? second : undefined;
}
