import { readOverload, summarizeRefusal } from '@logpond/db/clickhouse-error';
import type { StoreError } from '@logpond/db/store-error';

/**
 * Counts how often an insert failed for the same reason that may lie in its rows: refused for what they say, or too
 * large for the server's memory. Other failures between do not matter, except that one which the server did not answer
 * may still be running: from then on memory is no reason.
 */
export class RefusalCounter {
  #mayHalveForMemory: boolean;
  #reason: string | undefined;
  #times = 0;

  /** @param options `mayHalveForMemory`: no insert of these rows can be running that this counter was not told of. */
  constructor(options: { mayHalveForMemory: boolean }) {
    this.#mayHalveForMemory = options.mayHalveForMemory;
  }

  /** False once an insert may be running that the server did not answer. */
  get mayHalveForMemory(): boolean {
    return this.#mayHalveForMemory;
  }

  /** Tells of a failure. Returns how often its reason came in a row; 0 when it has none. */
  count(error: StoreError): number {
    const reason = this.#reasonOf(error);
    if (reason === undefined) return 0;
    this.#times = reason === this.#reason ? this.#times + 1 : 1;
    this.#reason = reason;
    return this.#times;
  }

  #reasonOf(error: StoreError): string | undefined {
    if (error.kind === 'invalid_query') return summarizeRefusal(error);
    const overload = readOverload(error);
    if (overload === 'memory') return this.#mayHalveForMemory ? 'memory' : undefined;
    if (overload !== 'parts') this.#mayHalveForMemory = false;
    return undefined;
  }
}
