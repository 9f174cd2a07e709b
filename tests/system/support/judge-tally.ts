import { isDeepStrictEqual } from 'node:util';
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
  /** Rows in the dead letters; kept, though not stored. */
  readonly #dead = new Map<number, Set<number>>();

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
    if (name === undefined || this.#find(name) === undefined) {
      this.findings.foreign += 1;
      addFault(this.findings, `foreign: a dead letter holds ${JSON.stringify(metadata).slice(0, 60)}`);
      return;
    }
    const rows = this.#dead.get(name.request) ?? new Set<number>();
    this.#dead.set(name.request, rows.add(name.row));
  }

  /**
   * Compares what was found with what was promised for each request. @returns the entries beyond the first copy.
   *
   * @param unreadable entries by project that lie in dead letters that cannot be read: that many may be missing.
   */
  conclude(unreadable: ReadonlyMap<string, number> = new Map()): number {
    const allowed = new Map(unreadable);
    let extraCopies = 0;
    for (const request of this.#ledger.requests) extraCopies += this.#conclude(request, allowed);
    this.#checkOrder();
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
        `duplicated: ${request.number}.${row} is stored twice under ${epoch}:${offset}`,
      );
      return;
    }
    copy.rows[row] = 1;
    copy.found += 1;
  }

  #conclude(request: LedgerRequest, unreadable: Map<string, number>): number {
    const copies = this.#copies[request.number] ?? [];
    const dead = this.#dead.get(request.number);
    const name = `request ${request.number} (${request.isKeyed ? 'with key' : 'without key'}, ${request.outcomes.join(' ')})`;
    let missing = isAcknowledged(request) ? this.#countMissing(request, copies, dead) : 0;
    const excused = Math.min(missing, unreadable.get(request.tenant.projectId) ?? 0);
    if (excused > 0) {
      unreadable.set(request.tenant.projectId, (unreadable.get(request.tenant.projectId) ?? 0) - excused);
      missing -= excused;
    }
    if (missing > 0) addFault(this.findings, `lost: ${missing} of ${request.rows} entries of ${name}`);
    this.findings.lost += missing;
    const isTorn = copies.some(({ found }) => found + (dead?.size ?? 0) + excused < request.rows);
    if (isTorn)
      addFault(this.findings, `torn or out of order: ${name} is stored as ${this.describe(request.number)}`);
    const sendings = request.outcomes.filter((outcome) => outcome !== 'refused').length;
    const most = request.isKeyed ? Math.min(1, sendings) : sendings;
    const surplus = copies.slice(most).reduce((sum, { found }) => sum + found, 0);
    if (surplus > 0)
      addFault(this.findings, `duplicated: ${name} is stored as ${this.describe(request.number)}`);
    this.findings.duplicated += surplus;
    return copies.slice(1).reduce((sum, { found }) => sum + found, 0);
  }

  #countMissing(
    request: LedgerRequest,
    copies: readonly Copy[],
    dead: ReadonlySet<number> | undefined,
  ): number {
    let missing = 0;
    for (let row = 0; row < request.rows; row += 1) {
      if (dead?.has(row) !== true && !copies.some(({ rows }) => rows[row] === 1)) missing += 1;
    }
    return missing;
  }

  /** A request issued after another of its shard was acknowledged is stored behind it. */
  #checkOrder(): void {
    const acknowledged = this.#ledger.requests
      .filter(isAcknowledged)
      .toSorted((a, b) => (a.acknowledgedAt ?? 0) - (b.acknowledgedAt ?? 0));
    const newest = new Map<number, { epoch: number; base: number; request: number }>();
    let next = 0;
    for (const request of this.#ledger.requests) {
      for (; (acknowledged[next]?.acknowledgedAt ?? Infinity) < request.issuedAt; next += 1) {
        const before = acknowledged[next];
        const copy = before && firstOf(this.#copies[before.number] ?? []);
        if (before === undefined || copy === undefined) continue;
        const known = newest.get(before.tenant.shard);
        if (known === undefined || comparePlaces(known, copy) < 0)
          newest.set(before.tenant.shard, { ...copy, request: before.number });
      }
      const own = firstOf(this.#copies[request.number] ?? []);
      const before = newest.get(request.tenant.shard);
      if (own !== undefined && before !== undefined && comparePlaces(own, before) < 0) {
        const places = `${own.epoch}:${own.base} lies before ${before.epoch}:${before.base}`;
        addFault(this.findings, `order: request ${request.number} at ${places} of request ${before.request}`);
      }
    }
  }
}

type Place = { epoch: number; base: number };

function firstOf(copies: readonly Place[]): Place | undefined {
  return copies.toSorted(comparePlaces)[0];
}

function comparePlaces(a: Place, b: Place): number {
  return a.epoch - b.epoch || a.base - b.base;
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
