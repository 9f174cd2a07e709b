/** How far an installation has come, as the runner sees it. */
export type Progress = {
  /** Entries acknowledged so far. */
  acknowledged: number;
  /** Offset of the next entry and of the first one not stored yet, by shard. */
  shards: readonly { next: number; done: number }[];
};

/** All injections of one fault. */
export type FaultSummary = {
  fault: string;
  times: number;
  /** Entries acknowledged between the injections and their recoveries. Faults overlap: an entry may count in several. */
  acknowledged: number;
  slowestMs: number;
  /** Injections after which no progress was seen. */
  unrecovered: number;
};

/** A time in which a fault was at work, in ms since 1970; to find out which fault lost an entry. */
export type FaultSpan = { fault: string; fromMs: number; toMs: number };

export type Injection = { end: () => void };

type Open = {
  fault: string;
  fromMs: number;
  acknowledgedBefore: number;
  /** Set at the end of the fault: what must be acknowledged and stored before it counts as recovered. */
  goal: { atMs: number; acknowledged: number; next: readonly number[] } | undefined;
};

/** Injections that wait for their recovery at once; a run has two or three a second. */
const OPEN_MAX = 10_000;

/**
 * Keeps account of the faults of a run. An injection has recovered when something was acknowledged after its end and
 * all that was admitted before its end is stored; with other faults going on meanwhile, that is an upper bound.
 */
export class FaultLog {
  readonly #summaries = new Map<string, FaultSummary>();
  readonly #spans: FaultSpan[] = [];
  readonly #open = new Set<Open>();
  readonly #now: () => number;
  readonly #note: (line: string) => void;
  #progress: Progress;

  /** @param note is told of each beginning and each recovery. */
  constructor(progress: Progress, now: () => number, note: (line: string) => void = () => {}) {
    this.#progress = progress;
    this.#now = now;
    this.#note = note;
  }

  /** Notes that a fault begins now; its `end` is to be called when it is over, at once for a kill. */
  begin(fault: string): Injection {
    const summary = this.#summaries.get(fault) ?? {
      fault,
      times: 0,
      acknowledged: 0,
      slowestMs: 0,
      unrecovered: 0,
    };
    this.#summaries.set(fault, summary);
    summary.times += 1;
    this.#note(`begins: ${fault}`);
    if (this.#open.size >= OPEN_MAX) throw new Error(`expected at most ${OPEN_MAX} faults at once`);
    const { acknowledged } = this.#progress;
    const open: Open = { fault, fromMs: this.#now(), acknowledgedBefore: acknowledged, goal: undefined };
    this.#open.add(open);
    return { end: () => void (open.goal ??= this.#goal()) };
  }

  /** A fault that is over as soon as it has begun. */
  strike(fault: string): void {
    this.begin(fault).end();
  }

  /** Looks which faults are recovered by now. */
  observe(progress: Progress): void {
    this.#progress = progress;
    for (const open of this.#open) {
      const { goal } = open;
      if (goal === undefined || progress.acknowledged <= goal.acknowledged) continue;
      const isStored = progress.shards.every(({ next, done }, shard) => {
        return done >= (goal.next[shard] ?? 0) || done === next;
      });
      if (isStored) this.#close(open, this.#now() - goal.atMs);
    }
  }

  /** Faults at work or not recovered from. */
  get openFaults(): number {
    return this.#open.size;
  }

  /** How often faults were injected whose name begins like this. */
  count(prefix: string): number {
    return this.summarize()
      .filter(({ fault }) => fault.startsWith(prefix))
      .reduce((sum, { times }) => sum + times, 0);
  }

  /** One line a fault, in the order of their names; faults still open count as not recovered. */
  summarize(): FaultSummary[] {
    const open = [...this.#open].filter(({ goal }) => goal !== undefined);
    return [...this.#summaries.values()]
      .map((summary) => ({
        ...summary,
        unrecovered: open.filter(({ fault }) => fault === summary.fault).length,
      }))
      .toSorted((a, b) => (a.fault < b.fault ? -1 : 1));
  }

  /** When each fault was at work, to the end of its recovery. */
  spans(): readonly FaultSpan[] {
    const nowMs = this.#now();
    return [...this.#spans, ...[...this.#open].map(({ fault, fromMs }) => ({ fault, fromMs, toMs: nowMs }))];
  }

  #goal(): NonNullable<Open['goal']> {
    const { acknowledged, shards } = this.#progress;
    return { atMs: this.#now(), acknowledged, next: shards.map(({ next }) => next) };
  }

  #close(open: Open, recoveryMs: number): void {
    this.#open.delete(open);
    this.#note(`recovered after ${recoveryMs} ms: ${open.fault}`);
    this.#spans.push({ fault: open.fault, fromMs: open.fromMs, toMs: this.#now() });
    const summary = this.#summaries.get(open.fault);
    if (summary === undefined) return;
    summary.acknowledged += this.#progress.acknowledged - open.acknowledgedBefore;
    summary.slowestMs = Math.max(summary.slowestMs, recoveryMs);
  }
}
