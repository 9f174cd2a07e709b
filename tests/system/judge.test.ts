import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Tally } from './support/judge-tally.ts';
import type { FoundEntry } from './support/judge-tally.ts';
import type { SealedLetter } from './support/judge-letters.ts';
import { renderEntry } from './support/oracle-entry.ts';
import { isAcknowledged, LedgerWriter, readLedger } from './support/oracle-ledger.ts';
import type { Outcome } from './support/oracle-ledger.ts';

const TENANT = { projectId: crypto.randomUUID(), apiKey: 'unused', shard: 1 };
const HEAD = { run: 'r', noiseBytes: 0, spreadDays: 1, tenants: [TENANT] };
const TIME_MS = 1_800_000_000_000;
const ROWS = 3;

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'logpond-judge-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

type Sent = { isKeyed?: boolean; ends: (Outcome | 'never')[] };

/** Writes a ledger of requests of three rows each, one after the other. */
function writeLedger(requests: readonly Sent[]): string {
  const file = join(directory, crypto.randomUUID());
  const writer = new LedgerWriter(file, HEAD);
  for (const [number, { isKeyed = true, ends }] of requests.entries()) {
    writer.issue({ number, rows: ROWS, timeMs: TIME_MS, isKeyed }, 0);
    for (const [turn, outcome] of ends.entries()) {
      if (turn > 0) writer.repeat(number);
      if (outcome !== 'never') writer.end(number, outcome, 0);
    }
  }
  return file;
}

/** A row as it should come back. */
function found(request: number, row: number, base: number, change: Partial<FoundEntry> = {}): FoundEntry {
  const { metadata, ...entry } = renderEntry({ run: 'r', request, row }, TIME_MS, HEAD);
  const place = { projectId: TENANT.projectId, shard: 1, epoch: 1, offset: base + row };
  return { ...place, entry, metadata: JSON.stringify(metadata), ...change };
}

/** All rows of a copy of a request. */
function copy(request: number, base: number, rows = [0, 1, 2]): FoundEntry[] {
  return rows.map((row) => found(request, row, base));
}

/** What lies in dead letters: rows of the first request, and letters that cannot be read. */
type Dead = { rows?: number[]; sealed?: Omit<SealedLetter, 'projectId' | 'epoch'>[] };

function judge(
  requests: readonly Sent[],
  entries: readonly FoundEntry[],
  { rows = [], sealed = [] }: Dead = {},
): Tally {
  const tally = new Tally(readLedger(writeLedger(requests)));
  for (const entry of entries) tally.place(entry);
  for (const row of rows) tally.placeDead(renderEntry({ run: 'r', request: 0, row }, TIME_MS, HEAD).metadata);
  for (const letter of sealed) tally.placeSealed({ projectId: TENANT.projectId, epoch: 1, ...letter });
  tally.conclude();
  return tally;
}

const KEPT: Sent = { ends: ['acknowledged'] };

describe('the judge', () => {
  it.each<{
    what: string;
    requests: Sent[];
    entries: FoundEntry[];
    dead?: Dead;
    finds: object;
    says: string;
  }>([
    { what: 'a lost request', requests: [KEPT], entries: [], finds: { lost: 3 }, says: 'lost: 3 of 3' },
    {
      what: 'a lost row',
      requests: [KEPT],
      entries: copy(0, 1, [0, 2]),
      finds: { lost: 1 },
      says: 'lost: 1 of 3',
    },
    {
      what: 'a row stored twice under one identity',
      requests: [KEPT],
      entries: [...copy(0, 1), found(0, 1, 1)],
      finds: { duplicated: 1 },
      says: 'stored twice',
    },
    {
      what: 'two copies of a request with a key',
      requests: [{ ends: ['ambiguous', 'acknowledged'] }],
      entries: [...copy(0, 1), ...copy(0, 4)],
      finds: { duplicated: 3 },
      says: 'duplicated: request 0',
    },
    {
      what: 'more copies than sendings without a key',
      requests: [{ isKeyed: false, ends: ['acknowledged'] }],
      entries: [...copy(0, 1), ...copy(0, 4)],
      finds: { duplicated: 3 },
      says: 'duplicated: request 0',
    },
    {
      what: 'a refused request that is stored',
      requests: [{ ends: ['refused'] }],
      entries: copy(0, 1),
      finds: { duplicated: 3 },
      says: 'duplicated: request 0',
    },
    {
      what: 'an entry that nobody sent',
      requests: [KEPT],
      entries: [...copy(0, 1), found(7, 0, 9)],
      finds: { foreign: 1 },
      says: 'foreign',
    },
    {
      what: 'an entry in another project',
      requests: [KEPT],
      entries: [...copy(0, 1, [0, 1]), found(0, 2, 1, { projectId: crypto.randomUUID() })],
      finds: { foreign: 1, lost: 1 },
      says: 'foreign',
    },
    {
      what: 'a changed payload',
      requests: [KEPT],
      entries: [...copy(0, 1, [0, 1]), found(0, 2, 1, { entry: { ...found(0, 2, 1).entry, level: 'x' } })],
      finds: { changed: 1 },
      says: 'changed: 0.2',
    },
    {
      what: 'rows out of their order',
      requests: [KEPT],
      entries: [found(0, 0, 1), found(0, 1, 2), found(0, 2, 0)],
      finds: { lost: 0 },
      says: 'torn or out of order',
    },
    {
      what: 'half of an unconfirmed request',
      requests: [{ ends: ['ambiguous'] }],
      entries: copy(0, 1, [0, 1]),
      finds: { lost: 0 },
      says: 'torn or out of order',
    },
    {
      what: 'a request before one that was acknowledged earlier',
      requests: [KEPT, KEPT],
      entries: [...copy(0, 10), ...copy(1, 1)],
      finds: { lost: 0 },
      says: 'order: request 1',
    },
    {
      what: 'an entry that is stored and in a dead letter',
      requests: [KEPT],
      entries: copy(0, 1),
      dead: { rows: [1] },
      finds: { lost: 0, duplicated: 1 },
      says: 'duplicated: request 0 (with key, acknowledged) is stored as 1:1+3, and 1 of its entries',
    },
    {
      what: 'an entry that is in two dead letters',
      requests: [KEPT],
      entries: copy(0, 1, [0, 2]),
      dead: { rows: [1, 1] },
      finds: { lost: 0, duplicated: 1 },
      says: 'duplicated: request 0',
    },
    {
      what: 'what a dead letter that cannot be read is too small for',
      requests: [KEPT, KEPT],
      entries: [],
      dead: { sealed: [{ firstOffset: 1, entries: 4 }] },
      finds: { lost: 2, duplicated: 0 },
      says: 'lost: 2 of 3 entries of request 1',
    },
    {
      what: 'what is lost somewhere else than where a dead letter lies that cannot be read',
      requests: [KEPT, KEPT, KEPT],
      entries: [...copy(0, 1), ...copy(2, 7)],
      dead: { sealed: [{ firstOffset: 7, entries: 3 }] },
      finds: { lost: 3, duplicated: 3 },
      says: 'lost: 3 of 3 entries of request 1',
    },
    {
      what: 'the rest of a request beside a dead letter that cannot be read',
      requests: [KEPT],
      entries: copy(0, 1, [0]),
      dead: { sealed: [{ firstOffset: 2, entries: 1 }] },
      finds: { lost: 1, duplicated: 0 },
      says: 'lost: 1 of 3',
    },
    {
      what: 'entries that are stored though they are said to be in a dead letter that cannot be read',
      requests: [KEPT, KEPT],
      entries: copy(0, 1),
      dead: { sealed: [{ firstOffset: 4, entries: 5 }] },
      finds: { lost: 0, duplicated: 2 },
      says: 'duplicated: 2 of 5 entries in an unreadable letter at 1:4',
    },
  ])('finds $what', ({ requests, entries, dead, finds, says }) => {
    const { findings } = judge(requests, entries, dead);
    expect(findings).toMatchObject(finds);
    expect(findings.faults.join('\n')).toContain(says);
  });

  it.each<{ what: string; requests: Sent[]; entries: FoundEntry[]; dead?: Dead }>([
    { what: 'what was acknowledged, once', requests: [KEPT, KEPT], entries: [...copy(0, 1), ...copy(1, 4)] },
    { what: 'an unconfirmed request that is not there', requests: [{ ends: ['ambiguous'] }], entries: [] },
    {
      what: 'a killed oracle whose last request is there',
      requests: [{ ends: ['never'] }],
      entries: copy(0, 1),
    },
    {
      what: 'two copies of two sendings without a key',
      requests: [{ isKeyed: false, ends: ['ambiguous', 'acknowledged'] }],
      entries: [...copy(0, 1), ...copy(0, 9)],
    },
    {
      what: 'a row in the dead letters',
      requests: [KEPT],
      entries: copy(0, 1, [0, 2]),
      dead: { rows: [1] },
    },
    {
      what: 'a request in a dead letter that cannot be read',
      requests: [KEPT, KEPT, KEPT],
      entries: [...copy(0, 1), ...copy(2, 7)],
      dead: { sealed: [{ firstOffset: 4, entries: 3 }] },
    },
    {
      what: 'an unconfirmed request in a dead letter that cannot be read',
      requests: [{ isKeyed: false, ends: ['ambiguous', 'acknowledged'] }],
      entries: copy(0, 4),
      dead: { sealed: [{ firstOffset: 1, entries: 3 }] },
    },
    { what: 'a request that was never sent', requests: [{ ends: ['unsent', 'unsent'] }], entries: [] },
  ])('has nothing against $what', ({ requests, entries, dead }) => {
    const { findings } = judge(requests, entries, dead);
    expect(findings).toEqual({ lost: 0, duplicated: 0, foreign: 0, changed: 0, faults: [] });
  });
});

describe('the ledger', () => {
  it('is read as it was written, and a line that was cut off counts as not written', () => {
    const file = writeLedger([
      { ends: ['ambiguous', 'acknowledged'] },
      { ends: ['refused'] },
      { ends: ['never'] },
    ]);
    appendFileSync(file, '{"ended":2,"outcome":"acknow');
    const { requests, ...head } = readLedger(file);
    expect(head).toEqual(HEAD);
    expect(requests.map(({ outcomes }) => outcomes)).toEqual([
      ['ambiguous', 'acknowledged'],
      ['refused'],
      ['ambiguous'],
    ]);
    expect(requests.map(isAcknowledged)).toEqual([true, false, false]);
  });
});
