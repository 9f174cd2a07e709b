import { readFileSync } from 'node:fs';

const SAMPLE_MS = 500;
/** A day of samples. */
const SAMPLES_MAX = 172_800;

export type MemorySummary = { name: string; minBytes: number; medianBytes: number; maxBytes: number };

/** Samples the resident memory of processes twice a second, until disposed of. Linux only. */
export class MemorySampler implements Disposable {
  readonly #samples = new Map<string, number[]>();
  readonly #timer: NodeJS.Timeout;

  /** @param listPids is asked at every sample: a process that was started again goes on under its name. */
  constructor(listPids: () => ReadonlyMap<string, number>) {
    this.#timer = setInterval(() => {
      for (const [name, pid] of listPids()) {
        const bytes = readResidentBytes(pid);
        const samples = this.#samples.get(name) ?? [];
        if (bytes !== undefined && samples.length < SAMPLES_MAX) samples.push(bytes);
        this.#samples.set(name, samples);
      }
    }, SAMPLE_MS);
  }

  /** In the order in which the processes were seen first. */
  summarize(): MemorySummary[] {
    return [...this.#samples].map(([name, samples]) => {
      const sorted = samples.toSorted((a, b) => a - b);
      return {
        name,
        minBytes: sorted[0] ?? 0,
        medianBytes: sorted[Math.floor(sorted.length / 2)] ?? 0,
        maxBytes: sorted.at(-1) ?? 0,
      };
    });
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}

/** Undefined while there is no such process. */
function readResidentBytes(pid: number): number | undefined {
  try {
    const kilobytes = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return kilobytes === undefined ? undefined : Number(kilobytes) * 1_024;
  } catch {
    return undefined;
  }
}
