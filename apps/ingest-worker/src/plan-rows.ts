import { encodeSeq } from '@logpond/log-block/entry-id';
import { COLUMN } from '@logpond/log-block/layout';
import { encodeNativePlan } from '@logpond/log-block/native';
import type { NativePlan, PlanPart, PlanTarget } from '@logpond/log-block/native';
import type { PlanRange } from '@logpond/db/log-store';
import { joinRanges } from '@logpond/db/offset-range';
import type { OffsetRange } from '@logpond/db/offset-range';
import { ORPHAN_CLASS_DAYS } from './plan.ts';
import type { Plan } from './plan.ts';

/** The offsets `[from, to)` of a shard. */
export type Window = OffsetRange;

const DAY_NS = 86_400_000_000_000n;
const HOUR_NS = 3_600_000_000_000n;
const HOUR_S = 3_600;
/** A plan that touches more hours is counted over its whole span of time. */
const HOURS_MAX = 200;

/** The rows of one plan: what is to be inserted of any part of it, and how to count that. */
export class PlanRows {
  readonly from: number;
  readonly to: number;
  /** The deduplication token of the whole. */
  readonly token: string;
  readonly parts: readonly PlanPart[];
  readonly projectIds: readonly string[];
  readonly minTimeNs: bigint;
  readonly maxTimeNs: bigint;
  /** Hours that entries lie in (UTC, seconds since 1970); undefined for more than 200. */
  readonly hours: readonly number[] | undefined;
  readonly #place: { shard: number; epoch: number };
  readonly #target: PlanTarget;
  #dead: readonly Window[];
  #whole: NativePlan | undefined;

  /** @param dead what of the plan lies in dead letters, or was passed over unread, and is never inserted. */
  constructor(
    place: { shard: number; epoch: number },
    plan: Plan,
    parts: readonly PlanPart[],
    dead: readonly Window[],
  ) {
    const runs = parts.flatMap(({ block }) => block.runs);
    this.from = plan.from;
    this.to = plan.to;
    this.token = `${place.shard}:${place.epoch}:${plan.from}-${plan.to}`;
    this.parts = parts;
    this.projectIds = [...new Set(runs.map((run) => run.projectId))];
    const times = runs.flatMap(({ minTimeNs, maxTimeNs }) => [minTimeNs, maxTimeNs]);
    this.minTimeNs = times.reduce((least, time) => (time < least ? time : least), times[0] ?? 0n);
    this.maxTimeNs = times.reduce((most, time) => (time > most ? time : most), 0n);
    this.hours = findHours(parts);
    this.#place = place;
    this.#dead = joinRanges(dead);
    this.#target = {
      ...place,
      retentionClassOf: (projectId) => plan.retention[projectId] ?? ORPHAN_CLASS_DAYS,
      // Rows older than their retention class when they were planned are past their life already.
      keepRow: (timeNs, projectId) =>
        timeNs >=
        BigInt(plan.atMs) * 1_000_000n - BigInt(plan.retention[projectId] ?? ORPHAN_CLASS_DAYS) * DAY_NS,
    };
  }

  /** What is never inserted, in order, neighbours as one. */
  get dead(): readonly Window[] {
    return this.#dead;
  }

  /** Takes rows out of all that follows: they are in a dead letter now. */
  addDead(windows: readonly Window[]): void {
    this.#dead = joinRanges([...this.#dead, ...windows]);
    this.#whole = undefined;
  }

  /** The rows of a window that are to be stored: neither expired nor dead. */
  *alive(window: Window = this): Generator<{ offset: number; projectId: string; timeNs: bigint }> {
    const dead = this.#deadOffsets(window);
    for (const row of this.#rows(window)) {
      if (!dead.has(row.offset) && this.isKept(row.timeNs, row.projectId)) yield row;
    }
  }

  /** Rows that were past their retention when they were planned. */
  countExpired(): number {
    if (this.#dead.length === 0) return this.encode().expired;
    let expired = 0;
    for (const { timeNs, projectId } of this.#rows(this)) if (!this.isKept(timeNs, projectId)) expired += 1;
    return expired;
  }

  /** Whether a row of the plan is to be kept at all. */
  isKept(timeNs: bigint, projectId: string): boolean {
    return this.#target.keepRow?.(timeNs, projectId) ?? true;
  }

  /** One insert of the rows in a window that are neither expired nor dead; with `only`, of these offsets at most. */
  encode(window: Window = this, only?: ReadonlySet<number>): NativePlan {
    const isWhole = window.from === this.from && window.to === this.to && only === undefined;
    if (isWhole && this.#whole !== undefined) return this.#whole;
    const plan =
      isWhole && this.#dead.length === 0
        ? encodeNativePlan(this.parts, this.#target)
        : encodeNativePlan(overlapping(this.parts, window), {
            ...this.#target,
            onlyOffsets: this.#aliveOffsets(window, only),
          });
    if (isWhole) this.#whole = plan;
    return plan;
  }

  /** The rows of a window as ClickHouse finds them. */
  rangeOf(window: Window = this): PlanRange {
    const { shard, epoch } = this.#place;
    return {
      projectIds: [...this.projectIds],
      minTimeNs: this.minTimeNs,
      maxTimeNs: this.maxTimeNs,
      hours: this.hours,
      shard,
      seqFrom: encodeSeq(epoch, window.from),
      seqTo: encodeSeq(epoch, window.to),
    };
  }

  #aliveOffsets(window: Window, only?: ReadonlySet<number>): Set<number> {
    return new Set(only ?? listOffsets(window)).difference(this.#deadOffsets(window));
  }

  #deadOffsets(window: Window): Set<number> {
    const offsets = new Set<number>();
    for (const { from, to } of this.#dead) {
      const common = { from: Math.max(from, window.from), to: Math.min(to, window.to) };
      for (const offset of listOffsets(common)) offsets.add(offset);
    }
    return offsets;
  }

  *#rows(window: Window): Generator<{ offset: number; projectId: string; timeNs: bigint }> {
    for (const { block, firstOffset } of overlapping(this.parts, window)) {
      const times = block.column(COLUMN.time);
      let row = 0;
      for (const { projectId, rows } of block.runs) {
        for (const end = row + rows; row < end; row += 1) {
          const offset = firstOffset + row;
          if (offset < window.from || offset >= window.to) continue;
          yield { offset, projectId, timeNs: times.readBigInt64LE(row * 8) };
        }
      }
    }
  }
}

function* listOffsets({ from, to }: Window): Generator<number> {
  for (let offset = from; offset < to; offset += 1) yield offset;
}

/** The parts that have rows in a window. */
export function overlapping(parts: readonly PlanPart[], { from, to }: Window): PlanPart[] {
  return parts.filter(({ block, firstOffset }) => firstOffset < to && firstOffset + block.rows > from);
}

function hourOf(timeNs: bigint): number {
  return Number(timeNs / HOUR_NS) * HOUR_S;
}

function findHours(parts: readonly PlanPart[]): number[] | undefined {
  const hours = new Set<number>();
  for (const { block } of parts) {
    let row = 0;
    for (const { rows, minTimeNs, maxTimeNs } of block.runs) {
      const [first, last] = [hourOf(minTimeNs), hourOf(maxTimeNs)];
      hours.add(first).add(last);
      // Only of a run that spans more than two hours each row is looked at.
      if (last - first > HOUR_S) {
        const times = block.column(COLUMN.time);
        for (let at = row; at < row + rows; at += 1) hours.add(hourOf(times.readBigInt64LE(at * 8)));
      }
      if (hours.size > HOURS_MAX) return undefined;
      row += rows;
    }
  }
  return [...hours].toSorted((a, b) => a - b);
}
