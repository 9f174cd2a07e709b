import { execFileSync } from 'node:child_process';
import { cpus } from 'node:os';
import type { Installation } from '../system/support/installation.ts';
import type { ProcessCost } from './process-cost.ts';

/** What a part hands back for `--json`. */
export type Figures = Record<string, unknown>;

export type BenchOptions = {
  seed: number;
  seconds: number | undefined;
  rounds: number | undefined;
  entries: number | undefined;
};

/** Prints rows under a headline, columns as wide as their widest cell; the first is flush left. */
export function printTable(
  headline: string,
  header: readonly string[],
  rows: readonly (readonly string[])[],
): void {
  const widths = header.map((name, column) =>
    Math.max(name.length, ...rows.map((row) => row[column]?.length ?? 0)),
  );
  const render = (row: readonly string[]): string =>
    row
      .map((cell, column) =>
        column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0),
      )
      .join('   ');
  console.log(`\n${headline}\n${render(header)}`);
  for (const row of rows) console.log(render(row));
}

/** The value below which a share of the sorted values lies (nearest rank); NaN of none. */
function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((left, right) => left - right);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** p50, p99, least and greatest of milliseconds, and their number. */
export function summarize(
  valuesMs: readonly number[],
): Record<'count' | 'p50' | 'p99' | 'min' | 'max', number> {
  return {
    count: valuesMs.length,
    p50: median(valuesMs),
    p99: quantile(valuesMs, 0.99),
    min: Math.min(...valuesMs),
    max: Math.max(...valuesMs),
  };
}

/** Prints processor share and memory of each process and of all; returns the same as figures. */
export function reportCosts(headline: string, costs: readonly ProcessCost[], seconds: number): Figures {
  const sum = (read: (cost: ProcessCost) => number): number =>
    costs.reduce((total, cost) => total + read(cost), 0);
  const total: ProcessCost = {
    name: 'sum',
    cpuSeconds: sum((cost) => cost.cpuSeconds),
    rssBytes: sum((cost) => cost.rssBytes),
    pssBytes: sum((cost) => cost.pssBytes),
  };
  const rows = [...costs, total].map((cost) => ({
    name: cost.name,
    cpuPercent: (100 * cost.cpuSeconds) / seconds,
    rssMb: cost.rssBytes / 1e6,
    pssMb: cost.pssBytes / 1e6,
  }));
  printTable(
    `${headline} (${seconds.toFixed(0)} s)`,
    ['process', 'CPU, % of a core', 'RSS, MB', 'PSS, MB'],
    rows.map((row) => [row.name, row.cpuPercent.toFixed(2), row.rssMb.toFixed(0), row.pssMb.toFixed(0)]),
  );
  return { seconds, processes: rows };
}

/** What the figures depend on. */
export async function readVersions(installation: Installation): Promise<Figures> {
  const redis = installation.connectRedis();
  const info = await redis.info('server');
  redis.disconnect();
  return { ...readMachine(), redis: /redis_version:(\S+)/.exec(info)?.[1] };
}

/** The same without the stores. */
export function readMachine(): Figures {
  return {
    node: process.versions.node,
    commit: execFileSync('git', ['rev-parse', '--short', 'HEAD'], {
      encoding: 'utf8',
      cwd: import.meta.dirname,
    }).trim(),
    processor: cpus()[0]?.model,
    cores: cpus().length,
  };
}
