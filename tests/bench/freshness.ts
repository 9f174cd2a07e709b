import { setTimeout as delay } from 'node:timers/promises';
import type { Credentials, Installation } from '../system/support/installation.ts';
import { createRandom, pickInteger } from '../system/support/random.ts';
import { waitFor } from '../support/wait.ts';
import { ApiClient } from './api-client.ts';
import { printTable, summarize } from './report.ts';
import type { BenchOptions, Figures } from './report.ts';

const ENTRIES = 200;
const WARM_UP_ENTRIES = 10;
const PAUSE_MS_MIN = 100;
const PAUSE_MS_MAX = 600;
/**
 * The first finds sooner, the second leaves the processor to the path that is measured. Half of the entries each, one
 * half after the other: in turns, the polls after one entry would slow its insert, and with it the worker's pause
 * before the next entry's.
 */
const POLL_PAUSES_MS = [2, 50] as const;
const FOUND_MS_MAX = 10_000;

type Timing = {
  pauseMs: number;
  ackMs: number;
  tailMs: number;
  foundMs: number;
  /** When the GET that found it was sent: it was not visible to the one before. */
  askedMs: number;
  pollMs: number[];
};

/** How long after its receipt a lone entry is found by a search and arrives on an open tail. */
export async function runFreshness(installation: Installation, options: BenchOptions): Promise<Figures> {
  const random = createRandom(options.seed);
  using client = new ApiClient(installation.credentials);
  await using tail = await TailClock.open(installation.credentials);
  const timings: Timing[] = [];
  const count = options.entries ?? ENTRIES;
  for (let index = -WARM_UP_ENTRIES; index < count; index += 1) {
    await delay(pickInteger(random, PAUSE_MS_MIN, PAUSE_MS_MAX));
    const pauseMs = POLL_PAUSES_MS[index < count / 2 ? 0 : 1];
    const word = `fresh${options.seed}n${index + WARM_UP_ENTRIES}`;
    const timing = await measureOne({ client, tail, word, pauseMs });
    if (index >= 0) timings.push(timing);
  }
  const rows = summarizeAll(timings);
  printTable(
    `${count} lone entries, ${PAUSE_MS_MIN} to ${PAUSE_MS_MAX} ms apart (a negative time: before the receipt)`,
    ['', 'p50, ms', 'p99, ms', 'min, ms', 'max, ms'],
    Object.entries(rows).map(([name, { p50, p99, min, max }]) => [
      name,
      ...[p50, p99, min, max].map((ms) => ms.toFixed(1)),
    ]),
  );
  console.log(
    'Polls do not overlap; an entry is visible up to one pause and one GET before it is found. Each GET also takes ' +
      'processor time from the path that it watches. The worker rests after an insert in proportion to its duration, ' +
      'so an entry soon after another waits for that too.',
  );
  return { entries: count, ms: rows, timings };
}

function summarizeAll(timings: readonly Timing[]): Record<string, ReturnType<typeof summarize>> {
  const rows: Record<string, ReturnType<typeof summarize>> = {
    'send to receipt': summarize(timings.map(({ ackMs }) => ackMs)),
    'receipt to open tail': summarize(timings.map(({ tailMs }) => tailMs)),
  };
  for (const pauseMs of POLL_PAUSES_MS) {
    const own = timings.filter((timing) => timing.pauseMs === pauseMs);
    rows[`receipt to found, asked every ${pauseMs} ms`] = summarize(own.map(({ foundMs }) => foundMs));
    rows[`  until the GET that found it was sent (${pauseMs})`] = summarize(
      own.map(({ askedMs }) => askedMs),
    );
    rows[`  one GET /logs?q= (${pauseMs})`] = summarize(own.flatMap(({ pollMs }) => pollMs));
  }
  return rows;
}

async function measureOne({
  client,
  tail,
  word,
  pauseMs,
}: {
  client: ApiClient;
  tail: TailClock;
  word: string;
  pauseMs: number;
}): Promise<Timing> {
  const body = Buffer.from(
    JSON.stringify({ logs: [{ service: 'bench', level: 'info', message: `lone ${word}` }] }),
  );
  const sentAt = performance.now();
  await client.ingest(body);
  const ackAt = performance.now();
  const pollMs: number[] = [];
  for (;;) {
    const askedAt = performance.now();
    const { total } = await client.get<{ total: number }>('/logs', { q: word, limit: '1' });
    const answeredAt = performance.now();
    pollMs.push(answeredAt - askedAt);
    if (total === 1) {
      const arrivedAt = await waitFor(`${word} on the tail`, () => tail.findArrival(word), FOUND_MS_MAX);
      return {
        pauseMs,
        ackMs: ackAt - sentAt,
        tailMs: arrivedAt - ackAt,
        foundMs: answeredAt - ackAt,
        askedMs: askedAt - ackAt,
        pollMs,
      };
    }
    if (answeredAt - ackAt > FOUND_MS_MAX) throw new Error(`${word} was not found within ${FOUND_MS_MAX} ms`);
    await delay(pauseMs);
  }
}

/** An open tail that remembers when each entry arrived. */
class TailClock implements AsyncDisposable {
  readonly #arrivals = new Map<string, number>();
  readonly #stop: AbortController;
  readonly #work: Promise<void>;

  private constructor(body: ReadableStream<Uint8Array>, stop: AbortController) {
    this.#stop = stop;
    // Ends by `stop`; an end before that shows as an entry that never arrives.
    this.#work = this.#read(body).catch(() => {});
  }

  static async open({ baseUrl, apiKey }: Credentials): Promise<TailClock> {
    const stop = new AbortController();
    const answer = await fetch(`${baseUrl}/logs/stream`, {
      headers: { 'X-API-Key': apiKey, Accept: 'text/event-stream' },
      signal: stop.signal,
    });
    if (answer.status !== 200 || answer.body === null) throw new Error(`expected 200, got ${answer.status}`);
    return new TailClock(answer.body, stop);
  }

  findArrival(word: string): number | undefined {
    return this.#arrivals.get(word);
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    let rest = '';
    for await (const text of body.pipeThrough(new TextDecoderStream())) {
      const now = performance.now();
      const events = (rest + text).split('\n\n');
      rest = events.pop() ?? '';
      for (const event of events) {
        const word = /"message":"lone (\w+)"/.exec(event)?.[1];
        if (word !== undefined) this.#arrivals.set(word, now);
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#work;
  }
}
