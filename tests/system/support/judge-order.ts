import type { Ledger, LedgerRequest } from './oracle-ledger.ts';
import { isAcknowledged } from './oracle-ledger.ts';

/** Where a copy of a request begins in its shard. */
export type Place = { epoch: number; base: number };

/** Where entries of a shard may lie: from the first place on, before the second. */
export type Range = { from: Place; to: Place };

const SHARD_START: Place = { epoch: 0, base: 0 };
const SHARD_END: Place = { epoch: Infinity, base: Infinity };

export function comparePlaces(a: Place, b: Place): number {
  return a.epoch === b.epoch ? a.base - b.base : a.epoch - b.epoch;
}

function firstOf(copies: readonly Place[]): Place | undefined {
  return copies.toSorted(comparePlaces)[0];
}

export function overlap(a: Range, b: Range): boolean {
  return comparePlaces(a.from, b.to) < 0 && comparePlaces(b.from, a.to) < 0;
}

type Newest = Place & { request: number };

/** Visits the requests in the order they were issued, each with the newest place that lies behind it. */
function walk(
  { requests }: Ledger,
  copiesOf: (request: number) => readonly Place[],
  visit: (request: LedgerRequest, before: Newest | undefined) => void,
): void {
  const acknowledged = requests
    .filter(isAcknowledged)
    .toSorted((a, b) => (a.acknowledgedAt ?? 0) - (b.acknowledgedAt ?? 0));
  const newest = new Map<number, Newest>();
  let next = 0;
  for (const request of requests) {
    for (; (acknowledged[next]?.acknowledgedAt ?? Infinity) < request.issuedAt; next += 1) {
      const before = acknowledged[next];
      const place = before && firstOf(copiesOf(before.number));
      if (before === undefined || place === undefined) continue;
      const known = newest.get(before.tenant.shard);
      if (known === undefined || comparePlaces(known, place) < 0)
        newest.set(before.tenant.shard, { ...place, request: before.number });
    }
    visit(request, newest.get(request.tenant.shard));
  }
}

/** A request issued after another of its shard was acknowledged is stored behind it. @returns the exceptions, in words. */
export function checkOrder(ledger: Ledger, copiesOf: (request: number) => readonly Place[]): string[] {
  const faults: string[] = [];
  walk(ledger, copiesOf, (request, before) => {
    const own = firstOf(copiesOf(request.number));
    if (own === undefined || before === undefined || comparePlaces(own, before) >= 0) return;
    const places = `${own.epoch}:${own.base} lies before ${before.epoch}:${before.base}`;
    faults.push(`order: request ${request.number} at ${places} of request ${before.request}`);
  });
  return faults;
}

/**
 * Where each request of the ledger must lie, by its number: behind what of its shard was acknowledged before it was
 * issued, and before what was issued after it was acknowledged.
 */
export function findRanges(ledger: Ledger, copiesOf: (request: number) => readonly Place[]): Range[] {
  const ranges: Range[] = [];
  walk(ledger, copiesOf, ({ number }, before) => {
    ranges[number] = { from: before ?? SHARD_START, to: SHARD_END };
  });
  const byEnd = ledger.requests
    .filter(isAcknowledged)
    .toSorted((a, b) => (b.acknowledgedAt ?? 0) - (a.acknowledgedAt ?? 0));
  const oldest = new Map<number, Place>();
  let next = ledger.requests.length - 1;
  for (const request of byEnd) {
    for (; (ledger.requests[next]?.issuedAt ?? -1) > (request.acknowledgedAt ?? 0); next -= 1) {
      const behind = ledger.requests[next];
      const place = behind && firstOf(copiesOf(behind.number));
      if (behind === undefined || place === undefined) continue;
      const known = oldest.get(behind.tenant.shard);
      if (known === undefined || comparePlaces(place, known) < 0) oldest.set(behind.tenant.shard, place);
    }
    const range = ranges[request.number];
    if (range !== undefined) range.to = oldest.get(request.tenant.shard) ?? SHARD_END;
  }
  return ranges;
}
