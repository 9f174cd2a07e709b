/** States times byte classes: 64 MB of table. */
const TABLE_SIZE_MAX = 16_777_216;

type Trie = { next: Int32Array[]; ends: number[][] };

/**
 * Finds many byte strings in one pass over a text (Aho and Corasick, "Efficient string matching", CACM 1975), ASCII
 * letters in either case. The price of a byte does not depend on the number of strings nor on what the text holds.
 *
 * Measured with 100 literals on messages of 49 bytes: 0.11 to 0.19 CPU-s per million; one regular expression of all
 * of them over the column as one latin1 string 0.02 to 0.14, but it then still has to be found out which of them it
 * was, and its price grows with strings that begin alike; `includes` of each 2.3 to 2.8.
 */
export class ByteAutomaton {
  readonly #classes = new Uint8Array(256);
  /** `state` is an offset into it; the states with strings that end there come last. */
  readonly #next: Int32Array;
  readonly #firstEnd: number;
  readonly #width: number;
  readonly #ends: readonly (readonly number[])[];
  /** By string: the last scan that found it. */
  readonly #foundIn: Float64Array;
  #turn = 0;

  /**
   * Strings that are not empty, without capital ASCII letters; they are told by their index.
   *
   * @throws {RangeError} when the table would take more than 64 MB.
   */
  constructor(patterns: readonly Uint8Array[]) {
    this.#foundIn = new Float64Array(patterns.length);
    this.#width = this.#classify(patterns);
    const trie = buildTrie(patterns, this.#classes, this.#width);
    linkFailures(trie, this.#width);
    const states = trie.next.length;
    const order = [...trie.next.keys()].toSorted(
      (a, b) => Number(trie.ends[a]?.length !== 0) - Number(trie.ends[b]?.length !== 0) || a - b,
    );
    const offsets = new Int32Array(states);
    for (const [index, state] of order.entries()) offsets[state] = index * this.#width;
    this.#next = new Int32Array(states * this.#width);
    for (const [index, state] of order.entries()) {
      const row = trie.next[state]?.map((target) => offsets[target] ?? 0);
      if (row !== undefined) this.#next.set(row, index * this.#width);
    }
    this.#ends = order.map((state) => trie.ends[state] ?? []);
    const plain = this.#ends.findIndex((ends) => ends.length > 0);
    this.#firstEnd = (plain < 0 ? states : plain) * this.#width;
  }

  /**
   * Writes the strings that occur in bytes [from, to) into `found`, each once, and returns how many there are. `found`
   * has room for all.
   */
  scan(bytes: Uint8Array, from: number, to: number, found: Int32Array): number {
    const classes = this.#classes;
    const next = this.#next;
    const firstEnd = this.#firstEnd;
    this.#turn += 1;
    let count = 0;
    let state = 0;
    for (let at = from; at < to; at += 1) {
      // Both are within their arrays: bytes are below 256, and every cell holds a state.
      state = next[state + (classes[bytes[at] as number] as number)] as number;
      if (state >= firstEnd) count = this.#take(state, found, count);
    }
    return count;
  }

  #take(state: number, found: Int32Array, count: number): number {
    let taken = count;
    for (const pattern of this.#ends[state / this.#width] ?? []) {
      if (this.#foundIn[pattern] === this.#turn) continue;
      this.#foundIn[pattern] = this.#turn;
      found[taken] = pattern;
      taken += 1;
    }
    return taken;
  }

  /** Numbers the bytes that occur; all others share class 0. Returns the number of classes. */
  #classify(patterns: readonly Uint8Array[]): number {
    let width = 1;
    for (const pattern of patterns) {
      for (const byte of pattern) {
        if (this.#classes[byte] !== 0) continue;
        this.#classes[byte] = width;
        width += 1;
      }
    }
    for (let lower = 0x61; lower <= 0x7a; lower += 1) this.#classes[lower - 32] = this.#classes[lower] ?? 0;
    return width;
  }
}

function buildTrie(patterns: readonly Uint8Array[], classes: Uint8Array, width: number): Trie {
  const trie: Trie = { next: [new Int32Array(width).fill(-1)], ends: [[]] };
  for (const [index, pattern] of patterns.entries()) {
    let state = 0;
    for (const byte of pattern) {
      const row = trie.next[state];
      const byteClass = classes[byte] ?? 0;
      let target = row?.[byteClass] ?? -1;
      if (target < 0) {
        target = trie.next.length;
        if ((target + 1) * width > TABLE_SIZE_MAX)
          throw new RangeError(`expected a table of at most ${TABLE_SIZE_MAX} cells, got more`);
        trie.next.push(new Int32Array(width).fill(-1));
        trie.ends.push([]);
        if (row !== undefined) row[byteClass] = target;
      }
      state = target;
    }
    trie.ends[state]?.push(index);
  }
  return trie;
}

/** Fills in, breadth first, where each state goes when its trie goes no further: where its longest proper suffix goes. */
function linkFailures({ next, ends }: Trie, width: number): void {
  const suffixes = new Int32Array(next.length);
  const queue = [0];
  for (const state of queue) {
    const row = next[state];
    const suffix = suffixes[state] ?? 0;
    if (row === undefined) continue;
    if (state !== 0) ends[state]?.push(...(ends[suffix] ?? []));
    for (let byteClass = 0; byteClass < width; byteClass += 1) {
      const target = row[byteClass] ?? -1;
      const viaSuffix = state === 0 ? 0 : (next[suffix]?.[byteClass] ?? 0);
      if (target < 0) row[byteClass] = viaSuffix;
      else {
        suffixes[target] = viaSuffix;
        queue.push(target);
      }
    }
  }
}
