import { isDeepStrictEqual } from 'node:util';
import { openLetters } from './judge-letters.ts';
import type { Gap, SealedLetter } from './judge-letters.ts';
import { checkOrder, findRanges } from './judge-order.ts';
import type { Range } from './judge-order.ts';
import { readEntryName, renderEntry } from './oracle-entry.ts';
import type { OracleEntry } from './oracle-entry.ts';
import { isAcknowledged } from './oracle-ledger.ts';
import type { Ledger, LedgerRequest } from './oracle-ledger.ts';

const FAULTS_SHOWN_MAX = 20;

/** What was found wrong: how many entries of each kind, and the first 20 in words. */
export type Findings = {
  lost: number;
  duplicated: number;
  foreign: number;
  changed: number;
  faults: string[];
};

function createFindings(): Findings {
  return { lost: 0, duplicated: 0, foreign: 0, changed: 0, faults: [] };
}

export function addFault(findings: Findings, text: string): void {
  if (findings.faults.length < FAULTS_SHOWN_MAX) findings.faults.push(text);
}

/** An entry as one of the two readers found it. */
export type FoundEntry = {
  projectId: string;
  shard: number;
  epoch: number;
  offset: number;
  entry: Omit<OracleEntry, 'metadata'>;
  /** JSON text. */
  metadata: string;
};

/**
 * One copy of a request: entries whose offsets follow each other as their rows do. `base` is the offset of the
 * first row.
 */
type Copy = { epoch: number; base: number; found: number; rows: Uint8Array };

/**
 * What one reader found of each request. It takes the entries in any order and keeps one byte for each, never
 * their payload.
 */
export class Tally {
  readonly findings = createFindings();
  readonly entriesByProject = new Map<string, number>();
  entries = 0;
  readonly #ledger: Ledger;
  readonly #copies: Copy[][];
  /** How often each row of a request is in the dead letters; kept, though not stored. */
  readonly #dead = new Map<number, Uint8Array>();
  readonly #sealed: SealedLetter[] = [];

  constructor(ledger: Ledger) {
    this.#ledger = ledger;
    this.#copies = ledger.requests.map(() => []);
  }

  /** Finds the request that an entry belongs to and compares the payload. */
  place(found: FoundEntry): void {
    this.entries += 1;
    this.entriesByProject.set(found.projectId, (this.entriesByProject.get(found.projectId) ?? 0) + 1);
    const metadata: unknown = JSON.parse(found.metadata);
    const name = readEntryName(metadata);
    const request = this.#find(name);
    if (name === undefined || request === undefined || request.tenant.projectId !== found.projectId) {
      this.findings.foreign += 1;
      addFault(this.findings, `foreign: ${found.entry.message.slice(0, 60)} in project ${found.projectId}`);
      return;
    }
    if (request.tenant.shard !== found.shard) {
      this.findings.foreign += 1;
      addFault(this.findings, `misplaced: ${name.request}.${name.row} in shard ${found.shard}`);
    }
    const expected = renderEntry(name, request.timeMs, this.#ledger);
    if (!isSame(found, metadata, expected)) {
      this.findings.changed += 1;
      addFault(this.findings, `changed: ${name.request}.${name.row}: ${JSON.stringify(found).slice(0, 300)}`);
    }
    this.#note(request, name.row, found);
  }

  /** Notes an entry of a dead letter. */
  placeDead(metadata: unknown): void {
    const name = readEntryName(metadata);
    const request = this.#find(name);
    if (name === undefined || request === undefined) {
      this.findings.foreign += 1;
      addFault(this.findings, `foreign: a dead letter holds ${JSON.stringify(metadata).slice(0, 60)}`);
      return;
    }
    const rows = this.#dead.get(name.request) ?? new Uint8Array(request.rows);
    rows[name.row] = (rows[name.row] ?? 0) + 1;
    this.#dead.set(name.request, rows);
  }

  /** Notes a dead letter that cannot be read: that many entries may be missing there. */
  placeSealed(letter: SealedLetter): void {
    this.#sealed.push(letter);
  }

  /** Compares what was found with what was promised for each request. @returns the entries beyond the first copy. */
  conclude(): number {
    const excused = this.#openSealed();
    let extraCopies = 0;
    for (const request of this.#ledger.requests)
      extraCopies += this.#conclude(request, excused.get(request.number) ?? 0);
    for (const fault of checkOrder(this.#ledger, (request) => this.#copies[request] ?? []))
      addFault(this.findings, fault);
    return extraCopies;
  }

  /** The copies found of a request, as text, for comparing two tallies. */
  describe(request: number): string {
    const copies = this.#copies[request] ?? [];
    return copies
      .map(({ epoch, base, found }) => `${epoch}:${base}+${found}`)
      .toSorted()
      .join(' ');
  }

  #find(name: { run: string; request: number; row: number } | undefined): LedgerRequest | undefined {
    if (name === undefined || name.run !== this.#ledger.run) return undefined;
    const request = this.#ledger.requests[name.request];
    return request !== undefined && name.row < request.rows ? request : undefined;
  }

  #note(request: LedgerRequest, row: number, { epoch, offset }: FoundEntry): void {
    const copies = this.#copies[request.number] ?? [];
    const base = offset - row;
    let copy = copies.find((known) => known.epoch === epoch && known.base === base);
    if (copy === undefined) {
      copy = { epoch, base, found: 0, rows: new Uint8Array(request.rows) };
      copies.push(copy);
    }
    if (copy.rows[row] === 1) {
      this.findings.duplicated += 1;
      addFault(
        this.findings,
        `duplicated: request ${request.number}, its row ${row} is stored twice under ${epoch}:${offset}`,
      );
      return;
    }
    copy.rows[row] = 1;
    copy.found += 1;
  }

  #conclude(request: LedgerRequest, excused: number): number {
    const copies = this.#copies[request.number] ?? [];
    const dead = this.#dead.get(request.number);
    const name = `request ${request.number} (${request.isKeyed ? 'with key' : 'without key'}, ${request.outcomes.join(' ')})`;
    const { missing, surplus } = this.#count(request);
    const lost = Math.max(0, missing - excused);
    if (lost > 0) addFault(this.findings, `lost: ${lost} of ${request.rows} entries of ${name}`);
    this.findings.lost += lost;
    const isTorn = copies.some(
      ({ rows }) => rows.filter((row, at) => row + (dead?.[at] ?? 0) === 0).length > excused,
    );
    if (isTorn)
      addFault(this.findings, `torn or out of order: ${name} is stored as ${this.describe(request.number)}`);
    const buried = dead?.filter((times) => times > 0).length ?? 0;
    const elsewhere = buried === 0 ? '' : `, and ${buried} of its entries are in dead letters`;
    if (surplus > 0)
      addFault(
        this.findings,
        `duplicated: ${name} is stored as ${this.describe(request.number)}${elsewhere}`,
      );
    this.findings.duplicated += surplus;
    return copies.slice(1).reduce((sum, { found }) => sum + found, 0);
  }

  /** `missing` of what was promised, `surplus` beyond what was sent, `room` for what may have been received. */
  #count(request: LedgerRequest): { missing: number; surplus: number; room: number } {
    const copies = this.#copies[request.number] ?? [];
    const dead = this.#dead.get(request.number);
    const isPromised = isAcknowledged(request);
    const most = countMost(request);
    const counts = { missing: 0, surplus: 0, room: 0 };
    for (let row = 0; row < request.rows; row += 1) {
      let kept = dead?.[row] ?? 0;
      for (const { rows } of copies) kept += rows[row] ?? 0;
      if (isPromised && kept === 0) counts.missing += 1;
      counts.surplus += Math.max(0, kept - most);
      counts.room += Math.max(0, most - kept);
    }
    return counts;
  }

  /** @returns by request the entries that are not there and lie in letters which cannot be read. */
  #openSealed(): Map<number, number> {
    if (this.#sealed.length === 0) return new Map();
    const ranges = findRanges(this.#ledger, (request) => this.#copies[request] ?? []);
    const gaps = this.#ledger.requests.flatMap((request): Gap[] => {
      const { number: at, tenant } = request;
      const { missing, room } = this.#count(request);
      const range = this.#rangeOf(request) ?? ranges[at];
      return room === 0 || range === undefined
        ? []
        : [{ request: at, projectId: tenant.projectId, range, missing, room }];
    });
    const { excused, overfull } = openLetters(this.#sealed, gaps);
    for (const { letter, surplus } of overfull) {
      const text = `of ${letter.entries} entries in an unreadable letter at ${letter.epoch}:${letter.firstOffset}`;
      addFault(this.findings, `duplicated: ${surplus} ${text} none is missing there`);
      this.findings.duplicated += surplus;
    }
    return excused;
  }

  /** Where the only copy of a request lies, when a part of it is there. */
  #rangeOf(request: LedgerRequest): Range | undefined {
    const [copy] = this.#copies[request.number] ?? [];
    if (copy === undefined || countMost(request) !== 1) return undefined;
    const { epoch, base } = copy;
    return { from: { epoch, base }, to: { epoch, base: base + request.rows } };
  }
}

/** How often a request may be stored. */
function countMost({ outcomes, isKeyed }: LedgerRequest): number {
  const sendings = outcomes.filter((outcome) => outcome !== 'refused').length;
  return isKeyed ? Math.min(1, sendings) : sendings;
}

/** Texts first: comparing objects takes longer than all the rest. */
function isSame(found: FoundEntry, metadata: unknown, expected: OracleEntry): boolean {
  const { entry } = found;
  const { time, service, level, message } = expected;
  if (entry.time !== time || entry.service !== service || entry.level !== level || entry.message !== message)
    return false;
  return (
    found.metadata === JSON.stringify(expected.metadata) || isDeepStrictEqual(metadata, expected.metadata)
  );
}
