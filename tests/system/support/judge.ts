import { isDeepStrictEqual } from 'node:util';
import { decodeSeq, encodeEntryId } from '@logpond/log-block/entry-id';
import { formatTimestampNs } from '@logpond/schema/timestamp';
import type { Oracle } from './oracle.ts';
import { isAcknowledged } from './oracle.ts';
import type { LedgerRequest } from './oracle.ts';
import { readEntryName, renderEntry } from './oracle-entry.ts';
import type { OracleEntry } from './oracle-entry.ts';
import type { Rig, Tenant } from './rig.ts';

const FAULTS_SHOWN_MAX = 20;

export type Verdict = {
  acknowledged: number;
  stored: number;
  /** Entries beyond the first copy; right only for requests without a key that were sent again. */
  extraCopies: number;
  /** The first 20 faults; the promise was kept when there is none. */
  faults: string[];
};

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

/**
 * Compares the ledger with what is stored: acknowledged entries are there, each once, as they were sent and in
 * their order; what was not acknowledged is there at most once a sending; nothing is there that nobody sent; and
 * the API pages through exactly what ClickHouse holds.
 */
export async function judge(rig: Rig, oracle: Oracle, apiUrl: string): Promise<Verdict> {
  const faults: string[] = [];
  const rows = await readStored(rig, oracle.tenants);
  const copies = new Map<LedgerRequest, StoredRow[][]>();
  for (const row of rows) placeRow(oracle, row, copies, faults);
  let extraCopies = 0;
  for (const request of oracle.ledger)
    extraCopies += checkRequest(request, copies.get(request) ?? [], faults);
  for (const tenant of oracle.tenants) await comparePages(apiUrl, tenant, rows, faults);
  return {
    acknowledged: oracle.acknowledgedRows,
    stored: rows.length,
    extraCopies,
    faults: faults.slice(0, FAULTS_SHOWN_MAX),
  };
}

async function readStored(rig: Rig, tenants: readonly Tenant[]): Promise<StoredRow[]> {
  return rig.selectRows<StoredRow>(
    `SELECT toString(project_id) AS projectId, toString(toUnixTimestamp64Nano(time)) AS timeNs, toString(seq) AS seq,
            shard, service, toString(level) AS level, message, metadata
     FROM logs WHERE project_id IN {projects:Array(UUID)} ORDER BY seq`,
    { projects: tenants.map((tenant) => tenant.projectId) },
  );
}

/** Finds the request that a stored row belongs to and compares the payload. */
function placeRow(
  oracle: Oracle,
  row: StoredRow,
  copies: Map<LedgerRequest, StoredRow[][]>,
  faults: string[],
): void {
  const metadata: unknown = JSON.parse(row.metadata);
  const name = readEntryName(metadata);
  const request = name === undefined || name.run !== oracle.run ? undefined : oracle.ledger[name.request];
  if (name === undefined || request === undefined || name.row >= request.rows) {
    faults.push(`foreign: ${row.message.slice(0, 60)}`);
    return;
  }
  if (request.tenant.projectId !== row.projectId || request.tenant.shard !== row.shard) {
    faults.push(`misplaced: ${name.request}.${name.row} in project ${row.projectId}, shard ${row.shard}`);
  }
  const stored = { time: formatTimestampNs(BigInt(row.timeNs)), service: row.service, level: row.level };
  const actual: OracleEntry = {
    ...stored,
    message: row.message,
    metadata: metadata as OracleEntry['metadata'],
  };
  if (!isDeepStrictEqual(actual, renderEntry(name, request.timeMs))) {
    faults.push(`changed: ${name.request}.${name.row} is ${JSON.stringify(actual).slice(0, 300)}`);
  }
  const places = copies.get(request) ?? Array.from({ length: request.rows }, () => []);
  places[name.row]?.push(row);
  copies.set(request, places);
}

/** Returns the surplus entries. */
function checkRequest(request: LedgerRequest, places: readonly StoredRow[][], faults: string[]): number {
  const numbers = new Set(places.map((place) => place.length));
  const found = places[0]?.length ?? 0;
  const name = `request ${request.number} (${request.isKeyed ? 'with key' : 'without key'}, ${request.outcomes.join(' ')})`;
  if (numbers.size > 1) faults.push(`torn: ${name} has ${[...numbers].join(' and ')} copies of its entries`);
  if (isAcknowledged(request) && found === 0) faults.push(`lost: ${name}`);
  const sendings = request.outcomes.filter((outcome) => outcome !== 'refused').length;
  const most = request.isKeyed ? Math.min(1, sendings) : sendings;
  if (found > most) faults.push(`duplicated: ${name} is stored ${found} times`);
  for (let copy = 0; copy < found; copy += 1) {
    const offsets = places.map((place) => BigInt(place[copy]?.seq ?? 0));
    const isOrdered = offsets.every((offset, row) => row === 0 || offset === (offsets[row - 1] ?? 0n) + 1n);
    if (!isOrdered) faults.push(`disordered: ${name}`);
  }
  return Math.max(0, found - 1) * request.rows;
}

/** Reads a project to its end through the API and compares the ids, in their order. */
async function comparePages(
  apiUrl: string,
  tenant: Tenant,
  rows: readonly StoredRow[],
  faults: string[],
): Promise<void> {
  const expected = rows
    .filter((row) => row.projectId === tenant.projectId)
    .map((row) => ({ timeNs: BigInt(row.timeNs), seq: BigInt(row.seq), shard: row.shard }))
    .toSorted((a, b) => compareBig(a.timeNs, b.timeNs) || compareBig(a.seq, b.seq))
    .map(({ timeNs, seq, shard }) => encodeEntryId(timeNs, { ...decodeSeq(seq), shard }));
  const pages = await readAllIds(apiUrl, tenant.apiKey);
  if (!isDeepStrictEqual(pages, expected)) {
    faults.push(
      `paging: the API gave ${pages.length} entries of ${tenant.projectId}, ClickHouse holds ${expected.length}`,
    );
  }
}

/** The ids of a project's stored entries in the order of their arrival, as the live tail gives them. */
export async function listIdsByArrival(rig: Rig, tenant: Tenant): Promise<string[]> {
  const rows = await readStored(rig, [tenant]);
  return rows.map(({ timeNs, seq, shard }) =>
    encodeEntryId(BigInt(timeNs), { ...decodeSeq(BigInt(seq)), shard }),
  );
}

/** All ids of a project by cursor, oldest first. */
export async function readAllIds(apiUrl: string, apiKey: string): Promise<string[]> {
  const ids: string[] = [];
  let cursor: string | null = null;
  do {
    const params: URLSearchParams = new URLSearchParams({ limit: '1000', order: 'asc' });
    if (cursor !== null) params.set('cursor', cursor);
    const answer = await fetch(`${apiUrl}/api/v1/logs?${params.toString()}`, {
      headers: { 'X-API-Key': apiKey },
      signal: AbortSignal.timeout(30_000),
    });
    if (answer.status !== 200)
      throw new Error(`expected 200 of /logs, got ${answer.status}: ${await answer.text()}`);
    const page = (await answer.json()) as {
      logs: { id: string }[];
      hasMore: boolean;
      nextCursor: string | null;
    };
    ids.push(...page.logs.map((entry) => entry.id));
    cursor = page.hasMore ? page.nextCursor : null;
  } while (cursor !== null);
  return ids;
}

function compareBig(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
