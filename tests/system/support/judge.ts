import { decodeEntryId, decodeSeq, encodeEntryId } from '@logpond/log-block/entry-id';
import { formatTimestampNs } from '@logpond/schema/timestamp';
import { waitFor } from '../../support/wait.ts';
import { countByChart, readPages } from './judge-api.ts';
import { addFault, Tally } from './judge-tally.ts';
import type { Findings } from './judge-tally.ts';
import type { Oracle } from './oracle.ts';
import { isAcknowledged, readLedger } from './oracle-ledger.ts';
import type { Ledger } from './oracle-ledger.ts';
import type { Tenant } from './rig.ts';

/** Offsets looked at by one query, so that memory does not grow with what is stored. */
const WINDOW_OFFSETS = 20_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const ROLL_UP_WAIT_MS = 30_000;

export type Verdict = Findings & {
  /** Entries that were promised. */
  acknowledged: number;
  /** Entries that ClickHouse holds of these projects. */
  stored: number;
  /** Entries beyond the first copy; right only for requests without a key that were sent again. */
  extraCopies: number;
  /** Entries in the dead letters of these projects; they count as kept. */
  deadLettered: number;
};

/** A dead letter of a project; its id begins with its epoch; `payload` is its NDJSON, undefined when it cannot be read. */
export type JudgedLetter = { id: string; firstOffset: number; entries: number; payload: string | undefined };

/** What the judge needs of a place where the product runs; a Rig is one. */
export type JudgedStores = {
  /** Rows of a query in ClickHouse, 64-bit integers as strings. */
  selectRows: <Row>(query: string, params?: Record<string, unknown>) => Promise<Row[]>;
  /** Absent: nothing was dead-lettered. */
  listLetters?: (projectId: string) => Promise<JudgedLetter[]>;
};

export type JudgeOptions = {
  /** Whether charts over whole hours must agree too; what a crash left open there is mended within minutes. */
  isRollUpJudged?: boolean;
};

/** Judges what an oracle's ledger promises; its memory is not asked. */
export async function judge(
  stores: JudgedStores,
  oracle: Pick<Oracle, 'ledgerFile'>,
  apiUrl: string,
  options: JudgeOptions = {},
): Promise<Verdict> {
  return judgeLedger(stores, oracle.ledgerFile, apiUrl, options);
}

/**
 * Compares a ledger with what is stored: acknowledged entries are there, each once, as they were sent and in
 * their order; what was not acknowledged is there at most once a sending, whole; nothing is there that nobody
 * sent. Entries are read twice, from ClickHouse and page by page through the API, and both must give the same
 * copies of every request; then they are counted by ClickHouse and by the API's charts.
 *
 * A million entries cost about 15 s of CPU here, besides what the stores take to give them twice.
 */
async function judgeLedger(
  stores: JudgedStores,
  ledgerFile: string,
  apiUrl: string,
  options: JudgeOptions = {},
): Promise<Verdict> {
  const ledger = readLedger(ledgerFile);
  const stored = new Tally(ledger);
  await readStored(stores, ledger.tenants, (row) => stored.place(toFoundEntry(row)));
  const deadLettered = await placeLetters(stores, ledger, stored);
  const extraCopies = stored.conclude();
  const { findings } = stored;
  await comparePages(apiUrl, ledger, stored);
  await compareCounts(stores, apiUrl, ledger, stored, options);
  const acknowledged = ledger.requests.filter(isAcknowledged).reduce((sum, { rows }) => sum + rows, 0);
  return { acknowledged, stored: stored.entries, extraCopies, deadLettered, ...findings };
}

type StoredRow = {
  projectId: string;
  timeNs: string;
  seq: string;
  shard: number;
  service: string;
  level: string;
  message: string;
  metadata: string;
};

/** Gives all rows of some projects to `take`, in the order of their arrival within each shard. */
async function readStored(
  { selectRows }: JudgedStores,
  tenants: readonly Tenant[],
  take: (row: StoredRow) => void,
): Promise<void> {
  const params = { projects: tenants.map(({ projectId }) => projectId) };
  const spans = await selectRows<{ shard: number; first: string; last: string }>(
    `SELECT shard, toString(min(seq)) AS first, toString(max(seq)) AS last FROM logs
     WHERE project_id IN {projects:Array(UUID)} GROUP BY shard, bitShiftRight(seq, 48) ORDER BY shard, first`,
    params,
  );
  for (const { shard, first, last } of spans) {
    for (let from = BigInt(first); from <= BigInt(last); from += BigInt(WINDOW_OFFSETS)) {
      const window = { shard, from: from.toString(), to: (from + BigInt(WINDOW_OFFSETS)).toString() };
      const rows = await selectRows<StoredRow>(
        `SELECT toString(project_id) AS projectId, toString(toUnixTimestamp64Nano(time)) AS timeNs,
           toString(seq) AS seq, shard, service, toString(level) AS level, message, metadata
         FROM logs WHERE project_id IN {projects:Array(UUID)} AND shard = {shard:UInt8}
           AND logs.seq >= {from:UInt64} AND logs.seq < {to:UInt64} ORDER BY logs.seq`,
        { ...params, ...window },
      );
      for (const row of rows) take(row);
    }
  }
}

function toFoundEntry(row: StoredRow): Parameters<Tally['place']>[0] {
  const { projectId, shard, service, level, message, metadata } = row;
  const time = formatTimestampNs(BigInt(row.timeNs));
  const entry = { time, service, level, message };
  return { projectId, shard, ...decodeSeq(BigInt(row.seq)), entry, metadata };
}

/** The entries in dead letters count as kept. @returns how many they are. */
async function placeLetters({ listLetters }: JudgedStores, ledger: Ledger, tally: Tally): Promise<number> {
  let deadLettered = 0;
  if (listLetters === undefined) return deadLettered;
  for (const { projectId } of ledger.tenants) {
    for (const { id, firstOffset, entries, payload } of await listLetters(projectId)) {
      deadLettered += entries;
      if (payload === undefined) {
        tally.placeSealed({ projectId, epoch: Number.parseInt(id, 10), firstOffset, entries });
        continue;
      }
      const lines = payload.split('\n').filter((line) => line !== '');
      for (const line of lines) tally.placeDead((JSON.parse(line) as { metadata: unknown }).metadata);
      if (lines.length !== entries)
        addFault(tally.findings, `a dead letter of ${entries} entries holds ${lines.length} lines`);
    }
  }
  return deadLettered;
}

/** Reads every project to its end through the API: same entries, same payload, in the order it promises. */
async function comparePages(apiUrl: string, ledger: Ledger, stored: Tally): Promise<void> {
  const paged = new Tally(ledger);
  for (const { projectId, apiKey } of ledger.tenants) {
    let before = { time: '', place: [0, 0] };
    for await (const entry of readPages(apiUrl, apiKey)) {
      const identity = decodeEntryId(entry.id);
      if (identity === undefined) throw new TypeError(`expected the id of an entry, got ${entry.id}`);
      const { shard, epoch, offset } = identity;
      const now = { time: entry.time, place: [epoch, offset] };
      if (comparePositions(before, now) >= 0)
        addFault(paged.findings, `the API gave ${entry.id} after ${before.time} ${before.place.join(':')}`);
      before = now;
      paged.place({ projectId, shard, epoch, offset, entry, metadata: JSON.stringify(entry.metadata) });
    }
  }
  const { findings } = stored;
  for (const { number } of ledger.requests) {
    const [ours, theirs] = [stored.describe(number), paged.describe(number)];
    if (ours !== theirs)
      addFault(findings, `paging: of request ${number} the API gave ${theirs}, ClickHouse ${ours}`);
  }
  if (paged.entries !== stored.entries)
    addFault(findings, `paging: the API gave ${paged.entries} entries, ClickHouse holds ${stored.entries}`);
  for (const fault of paged.findings.faults) addFault(findings, `through the API: ${fault}`);
}

type Position = { time: string; place: number[] };

function comparePositions(a: Position, b: Position): number {
  if (a.time !== b.time) return a.time < b.time ? -1 : 1;
  return (a.place[0] ?? 0) - (b.place[0] ?? 0) || (a.place[1] ?? 0) - (b.place[1] ?? 0);
}

/** Counts, which no cursor and no paging of our own can get wrong. */
async function compareCounts(
  { selectRows }: JudgedStores,
  apiUrl: string,
  ledger: Ledger,
  stored: Tally,
  { isRollUpJudged = false }: JudgeOptions,
): Promise<void> {
  const counts = await selectRows<{ projectId: string; entries: string; identities: string }>(
    `SELECT toString(project_id) AS projectId, toString(count()) AS entries,
       toString(uniqExact(shard, seq)) AS identities
     FROM logs WHERE project_id IN {projects:Array(UUID)} GROUP BY project_id`,
    { projects: ledger.tenants.map(({ projectId }) => projectId) },
  );
  const times = ledger.requests.map(({ timeMs }) => timeMs);
  const firstMs = times.reduce((a, b) => Math.min(a, b), Infinity);
  const range = { fromMs: firstMs - (ledger.spreadDays - 1) * DAY_MS, toMs: times.at(-1) ?? 0 };
  for (const { projectId, apiKey } of ledger.tenants) {
    const found = stored.entriesByProject.get(projectId) ?? 0;
    const counted = counts.find((count) => count.projectId === projectId);
    const { entries = '0', identities = '0' } = counted ?? {};
    if (Number(entries) !== found || Number(identities) !== found)
      addFault(
        stored.findings,
        `count: ${projectId} has ${entries} entries and ${identities} ids, read ${found}`,
      );
    if (ledger.requests.length === 0) continue;
    // No whole hours, so that entries are counted and not the roll-up.
    const charted = await countByChart(apiUrl, apiKey, range, '7m');
    if (charted !== found)
      addFault(stored.findings, `count: the chart of ${projectId} shows ${charted}, stored are ${found}`);
    if (isRollUpJudged) await compareRollUp(apiUrl, apiKey, range, found, stored.findings);
  }
}

async function compareRollUp(
  apiUrl: string,
  apiKey: string,
  range: { fromMs: number; toMs: number },
  found: number,
  findings: Findings,
): Promise<void> {
  const hours = {
    fromMs: Math.floor(range.fromMs / HOUR_MS) * HOUR_MS,
    toMs: Math.ceil((range.toMs + HOUR_MS) / HOUR_MS) * HOUR_MS,
  };
  let charted = 0;
  await waitFor(
    'the chart by hours to agree',
    async () => {
      charted = await countByChart(apiUrl, apiKey, hours, '1h');
      return charted === found;
    },
    ROLL_UP_WAIT_MS,
  ).catch(() => addFault(findings, `count: the chart by hours shows ${charted}, stored are ${found}`));
}

/** The ids of a project's stored entries in the order of their arrival, as the live tail gives them. */
export async function listIdsByArrival(stores: JudgedStores, tenant: Tenant): Promise<string[]> {
  const ids: string[] = [];
  await readStored(stores, [tenant], ({ timeNs, seq, shard }) =>
    ids.push(encodeEntryId(BigInt(timeNs), { ...decodeSeq(BigInt(seq)), shard })),
  );
  return ids;
}

/** All ids of a project by cursor, oldest first. */
export async function readAllIds(apiUrl: string, apiKey: string): Promise<string[]> {
  const ids: string[] = [];
  for await (const { id } of readPages(apiUrl, apiKey)) ids.push(id);
  return ids;
}
