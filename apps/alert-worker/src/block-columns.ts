import type { EntryColumns, StringRows } from '@logpond/alerting/matcher';
import type { DecodedBlock } from '@logpond/log-block/decode';
import { COLUMN } from '@logpond/log-block/layout';
import type { ColumnId } from '@logpond/log-block/layout';

const SECOND_NS = 1_000_000_000n;

/** The columns of a block as conditions look at them; each is inflated when it is first asked for. Throws BlockError. */
export class BlockColumns implements EntryColumns {
  readonly rows: number;
  readonly #block: DecodedBlock;

  constructor(block: DecodedBlock) {
    this.rows = block.rows;
    this.#block = block;
  }

  levels(): Uint8Array {
    return this.#block.column(COLUMN.level);
  }

  services(): StringRows {
    return this.#strings(COLUMN.service);
  }

  messages(): StringRows {
    return this.#strings(COLUMN.message);
  }

  metadata(): StringRows {
    return this.#strings(COLUMN.metadata);
  }

  traceId(row: number): string | undefined {
    return this.#block.traceId(row);
  }

  /** The second of an entry's time, since 1970. */
  second(row: number): number {
    return Number(this.#block.column(COLUMN.time).readBigInt64LE(row * 8) / SECOND_NS);
  }

  #strings(id: ColumnId): StringRows {
    return { bytes: this.#block.column(id), ends: this.#block.stringEnds(id) };
  }
}
