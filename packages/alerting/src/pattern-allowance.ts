/**
 * Ordinary patterns cost up to 11 ns for a byte of log text, hostile ones up to 17 µs (re2js 2.10, measured): what is
 * earned leaves the first about four times what they need.
 */
const EARNED_PER_BYTE_MS = 50e-6;
/** For each text, and for each entry that is looked at: reading costs about 1 µs, however short it is. */
const EARNED_PER_TEXT_MS = 2e-3;
const SAVED_MAX_MS = 1_000;
/** The clock costs 1 µs; it is read after each so many bytes of text at the latest. */
const METERED_BYTES = 4_096;
/** Counts for so many bytes, beside its own, until the clock is read next. */
const METERED_PER_TEXT_BYTES = 16;
/** Asking stops for a turn of others when it took so long. */
const TURN_MS = 20;

/** Entries that patterns were not asked about; one that two patterns were not asked about counts twice. */
export type SkippedAsks = { ruleIds: string[]; entries: number };

/**
 * How long the patterns of one project may take, so that a hostile one cannot stop the rules of others: the time is
 * earned by the texts that patterns are asked about, so that ordinary patterns never run out of it, whatever the
 * load. While it is spent, patterns are not asked; their texts earn all the same. It is overdrawn by one text at most.
 */
export class PatternAllowance {
  readonly #cpuMs: () => number;
  readonly #skipped = new Map<string, number>();
  #savedMs = SAVED_MAX_MS;
  #readMs = 0;
  #beganMs = 0;
  #unmeteredBytes = 0;

  /** @param cpuMs time that this thread has worked, in ms since any moment: waiting for the processor costs nothing. */
  constructor(cpuMs: () => number) {
    this.#cpuMs = cpuMs;
  }

  /** Begins a stretch of asking: what is worked until `end` is charged. */
  begin(): void {
    this.#beganMs = this.#cpuMs();
    this.#readMs = this.#beganMs;
    this.#unmeteredBytes = 0;
  }

  end(): void {
    const nowMs = this.#cpuMs();
    this.#savedMs -= Math.max(0, nowMs - this.#readMs);
    this.#readMs = nowMs;
    this.#unmeteredBytes = 0;
  }

  /** Within a stretch: does what is not charged. */
  exclude<T>(run: () => T): T {
    this.end();
    const result = run();
    this.#readMs = this.#cpuMs();
    return result;
  }

  /** Earns what one more entry costs to look at. */
  earnEntry(): void {
    this.#earn(EARNED_PER_TEXT_MS);
  }

  /** Earns what a text is worth. False: all is spent, and the pattern is not to be asked. */
  admit(bytes: number): boolean {
    this.#earn(EARNED_PER_TEXT_MS + bytes * EARNED_PER_BYTE_MS);
    this.#unmeteredBytes += bytes + METERED_PER_TEXT_BYTES;
    return this.#savedMs > 0;
  }

  /** After each text. True: the stretch has taken long enough for now. */
  meter(): boolean {
    if (this.#unmeteredBytes < METERED_BYTES) return false;
    this.end();
    return this.#readMs - this.#beganMs >= TURN_MS;
  }

  /** Notes that a rule's pattern was not asked about so many entries. */
  skip(ruleId: string, entries: number): void {
    this.#skipped.set(ruleId, (this.#skipped.get(ruleId) ?? 0) + entries);
  }

  /** What was skipped since the last call; undefined: nothing. */
  takeSkipped(): SkippedAsks | undefined {
    if (this.#skipped.size === 0) return undefined;
    const entries = this.#skipped.values().reduce((sum, count) => sum + count, 0);
    const ruleIds = [...this.#skipped.keys()];
    this.#skipped.clear();
    return { ruleIds, entries };
  }

  #earn(ms: number): void {
    this.#savedMs = Math.min(SAVED_MAX_MS, this.#savedMs + ms);
  }
}
