/** A value and when the store last confirmed it, ms since epoch. */
type Confirmed<T> = { value: T; atMs: number };

/** What a store said, by key; at most `entriesMax`, of which the one confirmed longest ago leaves first. */
export class ConfirmedCache<T> {
  readonly #entries = new Map<string, Confirmed<T>>();
  readonly #entriesMax: number;

  constructor(entriesMax: number) {
    this.#entriesMax = entriesMax;
  }

  get(key: string): Confirmed<T> | undefined {
    return this.#entries.get(key);
  }

  /** The value if it was confirmed at most `ageMaxMs` ago; a clock that went back makes it too old. */
  getFresh(key: string, nowMs: number, ageMaxMs: number): Confirmed<T> | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined || nowMs < entry.atMs || nowMs - entry.atMs > ageMaxMs) return undefined;
    return entry;
  }

  set(key: string, value: T, atMs: number): void {
    this.#entries.delete(key);
    this.#entries.set(key, { value, atMs });
    if (this.#entries.size <= this.#entriesMax) return;
    const oldest = this.#entries.keys().next();
    if (oldest.done !== true) this.#entries.delete(oldest.value);
  }

  delete(key: string): void {
    this.#entries.delete(key);
  }

  /** Deletes what the predicate picks; looks at every entry. */
  deleteWhere(isPicked: (value: T) => boolean): void {
    for (const [key, entry] of this.#entries) if (isPicked(entry.value)) this.#entries.delete(key);
  }
}
