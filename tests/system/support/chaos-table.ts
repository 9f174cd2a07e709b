import type { FaultSpan, FaultSummary } from './chaos-log.ts';
import { readLedger } from './oracle-ledger.ts';

/** Renders a table in Markdown; the first column is flush left, the others right. */
export function renderTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = header.map((name, column) =>
    Math.max(name.length, ...rows.map((row) => row[column]?.length ?? 0)),
  );
  const pad = (cell: string, column: number): string =>
    column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0);
  const rule = widths.map((width, column) =>
    column === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`,
  );
  return [header.map(pad), rule, ...rows.map((row) => row.map(pad))]
    .map((cells) => `| ${cells.join(' | ')} |`)
    .join('\n');
}

export function formatCount(count: number): string {
  return count.toLocaleString('en-US');
}

/** Entries that came to harm, with the times at which their request was sent first and answered last. */
export type Harm = { kind: 'lost' | 'duplicated'; entries: number; fromMs: number; toMs: number };

/** One line a fault; an entry that came to harm counts for every fault at work while it was under way. */
export function renderFaults(
  summaries: readonly FaultSummary[],
  spans: readonly FaultSpan[],
  harms: readonly Harm[],
): string {
  const harmOf = (fault: string, kind: Harm['kind']): number =>
    harms
      .filter((harm) => harm.kind === kind)
      .filter((harm) =>
        spans.some((span) => span.fault === fault && span.fromMs <= harm.toMs && span.toMs >= harm.fromMs),
      )
      .reduce((sum, { entries }) => sum + entries, 0);
  return renderTable(
    ['fault', 'times injected', 'entries acknowledged', 'lost', 'duplicated', 'slowest recovery, s'],
    summaries.map(({ fault, times, acknowledged, slowestMs, unrecovered }) => [
      fault,
      formatCount(times),
      formatCount(acknowledged),
      formatCount(harmOf(fault, 'lost')),
      formatCount(harmOf(fault, 'duplicated')),
      unrecovered > 0 ? `${unrecovered} never` : (slowestMs / 1_000).toFixed(1),
    ]),
  );
}

/** How long one request may have been under way at most, all its sendings together. */
const UNDER_WAY_MS = 60_000;

/** The requests that a verdict's faults name, from the ledger; of the first 20 faults only. */
export function findHarms(faults: readonly string[], ledgerFile: string): Harm[] {
  if (faults.length === 0) return [];
  const { requests } = readLedger(ledgerFile);
  return faults.flatMap((fault) => {
    const [, kind, missing, number] = /^(lost|duplicated):(?: (\d+) of)?.*?\brequest (\d+)/.exec(fault) ?? [];
    const request = requests[Number(number)];
    if (request === undefined || (kind !== 'lost' && kind !== 'duplicated')) return [];
    const entries = missing === undefined ? request.rows : Number(missing);
    return [{ kind, entries, fromMs: request.timeMs, toMs: request.timeMs + UNDER_WAY_MS }];
  });
}
