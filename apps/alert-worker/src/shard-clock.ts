/**
 * What time it is for the rules of a shard: the time at which the last block was received, by the clock of the API
 * that took it, and what has passed since it was read. Either that clock or this machine's own may be wrong by hours,
 * and an end that is told too early takes entries out of windows; one that is told late says the same. So ends are
 * told by whichever of the two is behind.
 */
export class ShardClock {
  readonly #elapsedMs: () => number;
  #seen: { receivedAtMs: number; atMs: number } | undefined;

  /**
   * @param options.elapsedMs never goes back, such as `performance.now`.
   * @param options.startMs the latest time that is known until a block is read; undefined: none.
   */
  constructor(options: { elapsedMs: () => number; startMs: number | undefined }) {
    this.#elapsedMs = options.elapsedMs;
    if (options.startMs !== undefined) this.see(options.startMs);
  }

  /** A block that was received then has just been read. */
  see(receivedAtMs: number): void {
    this.#seen = { receivedAtMs, atMs: this.#elapsedMs() };
  }

  /** Milliseconds since 1970; undefined while nobody can say. */
  read(): number | undefined {
    if (this.#seen === undefined) return undefined;
    return Math.floor(this.#seen.receivedAtMs + this.#elapsedMs() - this.#seen.atMs);
  }
}
