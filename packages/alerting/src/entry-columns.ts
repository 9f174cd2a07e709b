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

/** Bytes of the text of a row. */
export function measureText(rows: StringRows, row: number): number {
  return (rows.ends[row] ?? 0) - startOfText(rows, row);
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
  #bytesRead = 0;

  constructor(columns: EntryColumns) {
    this.#columns = columns;
  }

  get row(): number {
    return this.#row;
  }

  /** Bytes of all texts that were decoded. */
  get bytesRead(): number {
    return this.#bytesRead;
  }

  moveTo(row: number): void {
    this.#row = row;
    this.#service = undefined;
    this.#message = undefined;
    this.#lowerMessage = undefined;
    this.#metadata = undefined;
  }

  service(): string {
    this.#service ??= this.#decode(this.#columns.services());
    return this.#service;
  }

  message(): string {
    this.#message ??= this.#decode(this.#columns.messages());
    return this.#message;
  }

  lowerMessage(): string {
    this.#lowerMessage ??= this.message().toLowerCase();
    return this.#lowerMessage;
  }

  /** Parsed (metadata-path.ts). */
  metadata(): unknown {
    this.#metadata ??= parseMetadata(this.#decode(this.#columns.metadata()));
    return this.#metadata;
  }

  traceId(): string | undefined {
    return this.#columns.traceId(this.#row);
  }

  #decode(rows: StringRows): string {
    this.#bytesRead += measureText(rows, this.#row);
    return decodeRow(rows, this.#row);
  }
}
