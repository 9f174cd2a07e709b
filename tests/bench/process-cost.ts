import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PROCESS_NAMES } from '../system/support/installation.ts';
import type { Installation } from '../system/support/installation.ts';

/** getconf CLK_TCK of every Linux that Node runs on. */
const TICK_NS = 10_000_000n;
/** Beyond the rounding of ticks: threads ended in between and took their account with them. */
const ROUNDING_NS = 2n * TICK_NS;

export type ProcessCost = {
  name: string;
  cpuSeconds: number;
  rssBytes: number;
  /** Proportional: pages shared by n processes count 1/n in each. */
  pssBytes: number;
};

/** What a process has used so far. */
export type Sample = { pid: number; threadsNs: bigint; processNs: bigint };

/** The processor time of all processes of an installation between its start and `stop`; the load generator is not one. */
export class CostMeter {
  readonly #pids: ReadonlyMap<string, number>;
  #before: Map<string, Sample>;
  #startedAt: number;

  constructor(installation: Installation) {
    this.#pids = findPids(installation);
    this.#before = this.#sample();
    this.#startedAt = performance.now();
  }

  restart(): void {
    this.#before = this.#sample();
    this.#startedAt = performance.now();
  }

  /** @throws {Error} when a process has ended in between: its time is unknown. */
  read(): { costs: ProcessCost[]; seconds: number } {
    const seconds = (performance.now() - this.#startedAt) / 1_000;
    const after = this.#sample();
    const costs = [...after].map(([name, sample]) => {
      const before = this.#before.get(name);
      if (before === undefined) throw new Error(`expected a sample of ${name}`);
      return { name, cpuSeconds: subtractCpu(sample, before), ...readMemory(sample.pid) };
    });
    return { costs, seconds };
  }

  #sample(): Map<string, Sample> {
    return new Map([...this.#pids].map(([name, pid]) => [name, readCpu(pid)]));
  }
}

function findPids(installation: Installation): Map<string, number> {
  const pids = new Map([
    ['launcher', Number(readFileSync(join(installation.dataDir, 'launcher.pid'), 'utf8'))],
  ]);
  for (const name of PROCESS_NAMES) {
    const pid = installation.findProcess(name);
    if (pid === undefined) throw new Error(`expected ${name} to run`);
    pids.set(name, pid);
  }
  return pids;
}

/** schedstat is exact to the nanosecond but forgets ended threads; stat counts them, in ticks. */
export function readCpu(pid: number): Sample {
  let threadsNs = 0n;
  for (const task of readdirSync(`/proc/${pid}/task`)) {
    try {
      threadsNs += BigInt(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0] ?? '0');
    } catch {
      // The thread ended between the listing and the read.
    }
  }
  // After the name in brackets: state is field 3, utime and stime are 14 and 15 (proc(5)).
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /s, '')
    .split(' ');
  const ticks = BigInt(fields[11] ?? '0') + BigInt(fields[12] ?? '0');
  return { pid, threadsNs, processNs: ticks * TICK_NS };
}

/** CPU seconds between two samples of a process. */
export function subtractCpu(after: Sample, before: Sample): number {
  const byThreads = after.threadsNs - before.threadsNs;
  const byProcess = after.processNs - before.processNs;
  return Number(byProcess > byThreads + ROUNDING_NS ? byProcess : byThreads) / 1e9;
}

function readMemory(pid: number): { rssBytes: number; pssBytes: number } {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  const read = (field: string): number =>
    Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(text)?.[1] ?? Number.NaN) * 1_024;
  return { rssBytes: read('Rss'), pssBytes: read('Pss') };
}
