import { parseMetadata } from '@logpond/schema/metadata-path';

/** A column of texts as ClickHouse's Native format has it: per row a varint length and UTF-8; `ends[i]` ends row i. */
export type StringRows = { bytes: Uint8Array; ends: Uint32Array };

/** The columns of a block that rules ask for; each is read when it is first needed. */
export type EntryColumns = {
  rows: number;
  /** Level numbers, 1 to 5. */
  levels: () => ArrayLike<number>;
  services: () => StringRows;
  messages: () => StringRows;
  /** JSON texts of objects. */
  metadata: () => StringRows;
  /** The trace of an entry as it is shown. */
  traceId: (row: number) => string | undefined;
};

// What was sent with a byte order mark at its beginning keeps it.
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

/** Where the text of a row begins, after its length. */
export function startOfText({ bytes, ends }: StringRows, row: number): number {
  let at = row === 0 ? 0 : (ends[row - 1] ?? 0);
  while ((bytes[at] ?? 0) >= 0x80) at += 1;
  return at + 1;
}

function decodeRow(rows: StringRows, row: number): string {
  return decoder.decode(rows.bytes.subarray(startOfText(rows, row), rows.ends[row]));
}

/** One entry after the other; what of it is asked for is decoded once, however many rules ask. */
export class EntryReader {
  readonly #columns: EntryColumns;
  #row = 0;
  #service: string | undefined;
  #message: string | undefined;
  #lowerMessage: string | undefined;
  #metadata: unknown;

  constructor(columns: EntryColumns) {
    this.#columns = columns;
  }

  get row(): number {
    return this.#row;
  }

  moveTo(row: number): void {
    this.#row = row;
    this.#service = undefined;
    this.#message = undefined;
    this.#lowerMessage = undefined;
    this.#metadata = undefined;
  }

  service(): string {
    this.#service ??= decodeRow(this.#columns.services(), this.#row);
    return this.#service;
  }

  message(): string {
    this.#message ??= decodeRow(this.#columns.messages(), this.#row);
    return this.#message;
  }

  lowerMessage(): string {
    this.#lowerMessage ??= this.message().toLowerCase();
    return this.#lowerMessage;
  }

  /** Parsed (metadata-path.ts). */
  metadata(): unknown {
    this.#metadata ??= parseMetadata(decodeRow(this.#columns.metadata(), this.#row));
    return this.#metadata;
  }

  traceId(): string | undefined {
    return this.#columns.traceId(this.#row);
  }
}
