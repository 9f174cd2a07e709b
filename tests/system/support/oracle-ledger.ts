import { appendFileSync, closeSync, openSync, readSync } from 'node:fs';
import type { EntryShape } from './oracle-entry.ts';
import type { Tenant } from './rig.ts';

const READ_BYTES = 1024 * 1024;

/**
 * What one sending of a request came to. A 503, a 409 and a broken connection are ambiguous: stored or not.
 * `unsent`: no connection could be made, so nothing was sent.
 */
export type Outcome = 'acknowledged' | 'refused' | 'ambiguous' | 'unsent';

/** One request in the ledger, with the outcomes of all its sendings. */
export type LedgerRequest = {
  number: number;
  tenant: Tenant;
  rows: number;
  timeMs: number;
  /** With an Idempotency-Key every sending counts as one. */
  isKeyed: boolean;
  /** Without the unsent ones. A sending whose end nobody wrote down (a killed oracle) is ambiguous. */
  outcomes: Exclude<Outcome, 'unsent'>[];
  /** Lines of the ledger: what was issued after another's acknowledgement must be stored behind it. */
  issuedAt: number;
  acknowledgedAt: number | undefined;
};

/** Who sends and what: all that is needed to make each entry again. */
export type LedgerHead = EntryShape & { run: string; tenants: readonly Tenant[] };

export type Ledger = LedgerHead & { requests: LedgerRequest[] };

type Line =
  | { issued: number; tenant: number; rows: number; timeMs: number; isKeyed: boolean }
  | { again: number }
  | { ended: number; outcome: Outcome; status: number };

/**
 * The file that the oracle writes and the judge reads: one JSON object a line. Each line is with the operating
 * system before the next step is taken, so a killed oracle can still be judged.
 */
export class LedgerWriter {
  readonly file: string;

  /** Begins a new file. */
  constructor(file: string, head: LedgerHead) {
    this.file = file;
    appendFileSync(file, `${JSON.stringify(head)}\n`, { flag: 'ax' });
  }

  /** Before anything of a request is sent for the first time. */
  issue(request: Pick<LedgerRequest, 'number' | 'rows' | 'timeMs' | 'isKeyed'>, tenant: number): void {
    const { number, rows, timeMs, isKeyed } = request;
    this.#write({ issued: number, tenant, rows, timeMs, isKeyed });
  }

  /** Before a request is sent again. */
  repeat(request: number): void {
    this.#write({ again: request });
  }

  /** After each sending. @param status of the answer, 0 when there was none. */
  end(request: number, outcome: Outcome, status: number): void {
    this.#write({ ended: request, outcome, status });
  }

  #write(line: Line): void {
    appendFileSync(this.file, `${JSON.stringify(line)}\n`);
  }
}

/**
 * Reads a whole ledger; its memory is about 300 bytes a request, whatever the entries hold. A last line that was
 * cut off counts as not written.
 *
 * @throws {TypeError} when the file is not a ledger.
 */
export function readLedger(file: string): Ledger {
  let ledger: Ledger | undefined;
  const open = new Map<number, number>();
  let number = 0;
  for (const text of readLines(file)) {
    if (ledger === undefined) ledger = { ...(JSON.parse(text) as LedgerHead), requests: [] };
    else addLine(ledger, open, JSON.parse(text) as Line, number);
    number += 1;
  }
  if (ledger === undefined) throw new TypeError(`expected a ledger in ${file}, got an empty file`);
  for (const [request, sendings] of open) {
    for (let sending = 0; sending < sendings; sending += 1)
      findRequest(ledger, request).outcomes.push('ambiguous');
  }
  return ledger;
}

/** @param open counts the sendings of each request that have not ended. */
function addLine(ledger: Ledger, open: Map<number, number>, line: Line, number: number): void {
  if ('issued' in line) {
    const { issued, tenant: place, ...rest } = line;
    const tenant = ledger.tenants[place];
    if (tenant === undefined || ledger.requests.length !== issued)
      throw new TypeError(`line ${number}: expected request ${ledger.requests.length}, got ${issued}`);
    const request = { number: issued, tenant, ...rest, outcomes: [], issuedAt: number };
    ledger.requests.push({ ...request, acknowledgedAt: undefined });
    open.set(issued, 1);
    return;
  }
  if ('again' in line) {
    open.set(line.again, (open.get(line.again) ?? 0) + 1);
    return;
  }
  const sendings = (open.get(line.ended) ?? 0) - 1;
  if (sendings > 0) open.set(line.ended, sendings);
  else open.delete(line.ended);
  const request = findRequest(ledger, line.ended);
  if (line.outcome === 'unsent') return;
  request.outcomes.push(line.outcome);
  if (line.outcome === 'acknowledged') request.acknowledgedAt ??= number;
}

function findRequest(ledger: Ledger, number: number): LedgerRequest {
  const request = ledger.requests[number];
  if (request === undefined) throw new TypeError(`expected request ${number} to be issued before`);
  return request;
}

/** The whole lines of a file, one piece of it in memory at a time. */
function* readLines(file: string): Generator<string> {
  const fd = openSync(file, 'r');
  try {
    const piece = Buffer.alloc(READ_BYTES);
    let rest = Buffer.alloc(0);
    for (let size = readSync(fd, piece); size > 0; size = readSync(fd, piece)) {
      rest = Buffer.concat([rest, piece.subarray(0, size)]);
      const end = rest.lastIndexOf(10);
      if (end < 0) continue;
      yield* rest.toString('utf8', 0, end).split('\n');
      rest = rest.subarray(end + 1);
    }
  } finally {
    closeSync(fd);
  }
}

export function isAcknowledged(request: LedgerRequest): boolean {
  return request.acknowledgedAt !== undefined;
}
