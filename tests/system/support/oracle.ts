import { mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { renderEntry } from './oracle-entry.ts';
import type { EntryShape } from './oracle-entry.ts';
import { LedgerWriter, readLedger } from './oracle-ledger.ts';
import type { LedgerHead, LedgerRequest, Outcome } from './oracle-ledger.ts';
import type { Tenant } from './rig.ts';

const REQUEST_TIMEOUT_MS = 15_000;
const RESEND_PAUSE_MS = 50;
const LEDGER_KEPT_MS = 24 * 3_600_000;

export type OracleOptions = Partial<EntryShape> & {
  /** Part of every entry's name; a random part is added. */
  run: string;
  tenants: readonly Tenant[];
  /** The API to send to. */
  url: string;
  /** Where the ledger is written; default: a directory for temporary files, where it is kept for a day. */
  ledgerDir?: string;
};

export type SendOptions = {
  rows: number;
  isKeyed: boolean;
  /** Sendings of one request that may end without a clear answer; after those it is left alone. */
  ambiguousMax?: number;
};

export type LoadOptions = {
  /** Requests under way at once. */
  concurrency: number;
  rowsPerRequest: number;
  /** Pause of each sender between two requests. */
  pauseMs?: number;
  isKeyed: boolean;
  /** As of one `send`. */
  ambiguousMax?: number;
};

/** How a request ended. */
export type Sent = {
  number: number;
  outcomes: Exclude<Outcome, 'unsent'>[];
  /** Of the last answer; 0 when the connection broke. */
  status: number;
  retryAfter: string | undefined;
  isReplayed: boolean;
};

type Sending = Omit<LedgerHead['tenants'][number], 'shard'> & {
  number: number;
  isKeyed: boolean;
  rows: number;
  body: string;
};

/**
 * Issues numbered entries to several projects and writes down what was promised for each, for the judge. Its
 * memory does not grow with what it sends.
 */
export class Oracle {
  readonly run: string;
  readonly tenants: readonly Tenant[];
  readonly ledgerFile: string;
  /** Answers by status, in the order of their first appearance; 0 stands for a connection that broke or was refused. */
  readonly statuses = new Map<number, number>();
  /** Answers by status and project. */
  readonly statusesByProject = new Map<string, Map<number, number>>();
  /** Refusals (429, 503) without a Retry-After of whole seconds ≥ 1; there must be none. */
  unannounced = 0;
  /** Receipts that were replayed. */
  replayed = 0;
  acknowledgedRows = 0;
  readonly #shape: EntryShape;
  readonly #writer: LedgerWriter;
  #issued = 0;
  #url: string;

  constructor(options: OracleOptions) {
    const { run, tenants, url, noiseBytes = 0, spreadDays = 1, ledgerDir = makeLedgerDir() } = options;
    this.run = `${run}-${crypto.randomUUID().slice(0, 8)}`;
    this.tenants = tenants;
    this.#url = url;
    this.#shape = { noiseBytes, spreadDays };
    this.ledgerFile = join(ledgerDir, `${this.run}.ndjson`);
    this.#writer = new LedgerWriter(this.ledgerFile, { run: this.run, ...this.#shape, tenants });
  }

  /** Another API to send to from now on. */
  set url(url: string) {
    this.#url = url;
  }

  /** All requests so far, read from the file. */
  get ledger(): LedgerRequest[] {
    return readLedger(this.ledgerFile).requests;
  }

  /** Sends one request, again and again until it is answered clearly or the tries are used up. */
  async send(tenant: Tenant, options: SendOptions & { signal?: AbortSignal }): Promise<Sent> {
    const { rows, isKeyed, ambiguousMax = Infinity, signal } = options;
    const number = this.#issued;
    this.#issued += 1;
    const request = { number, rows, timeMs: Date.now(), isKeyed };
    this.#writer.issue(request, this.tenants.indexOf(tenant));
    const sending = { number, rows, isKeyed, ...tenant, body: this.#render(request) };
    const sent: Sent = { number, outcomes: [], status: 0, retryAfter: undefined, isReplayed: false };
    for (;;) {
      const outcome = await this.#post(sending, sent);
      this.#writer.end(number, outcome, sent.status);
      if (outcome === 'acknowledged') this.acknowledgedRows += rows;
      if (outcome !== 'unsent') sent.outcomes.push(outcome);
      if (outcome === 'acknowledged' || outcome === 'refused' || signal?.aborted) return sent;
      if (sent.outcomes.length >= ambiguousMax) return sent;
      await delay(RESEND_PAUSE_MS);
      this.#writer.repeat(number);
    }
  }

  /** Sends without pause until stopped. Whoever stops it waits for the requests under way, which are not sent again. */
  startLoad(options: LoadOptions): AsyncDisposable & { stop: () => Promise<void> } {
    const stop = new AbortController();
    const { rowsPerRequest: rows, isKeyed, ambiguousMax = Infinity } = options;
    const senders = Array.from({ length: options.concurrency }, async (_, sender) => {
      for (let turn = sender; !stop.signal.aborted; turn += 1) {
        const tenant = this.tenants[turn % this.tenants.length];
        if (tenant === undefined) throw new RangeError('expected at least one tenant');
        await this.send(tenant, { rows, isKeyed, ambiguousMax, signal: stop.signal });
        if (options.pauseMs !== undefined) await delay(options.pauseMs);
      }
    });
    const work = Promise.all(senders);
    // A failure is told by stop().
    work.catch(() => {});
    const end = async (): Promise<void> => {
      stop.abort();
      await work;
    };
    return { stop: end, [Symbol.asyncDispose]: end };
  }

  #render(request: Pick<LedgerRequest, 'number' | 'rows' | 'timeMs'>): string {
    const { run } = this;
    const entries = Array.from({ length: request.rows }, (_, row) =>
      JSON.stringify(renderEntry({ run, request: request.number, row }, request.timeMs, this.#shape)),
    );
    return `{"logs":[${entries.join(',')}]}`;
  }

  async #post(sending: Sending, sent: Sent): Promise<Outcome> {
    const headers: Record<string, string> = {
      'Content-Type': 'application/json',
      'X-API-Key': sending.apiKey,
    };
    if (sending.isKeyed) headers['Idempotency-Key'] = `${this.run}-${sending.number}`;
    Object.assign(sent, { status: 0, retryAfter: undefined, isReplayed: false });
    try {
      const answer = await fetch(`${this.#url}/api/v1/ingest`, {
        method: 'POST',
        headers,
        body: sending.body,
        signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
      });
      const receipt = (await answer.json()) as { received?: number };
      sent.status = answer.status;
      sent.retryAfter = answer.headers.get('retry-after') ?? undefined;
      sent.isReplayed = answer.headers.get('idempotency-replayed') === 'true';
      this.#count(sending.projectId, sent);
      if (answer.status === 200) {
        if (receipt.received === sending.rows) return 'acknowledged';
        throw new RangeError(`expected ${sending.rows} received, got ${JSON.stringify(receipt)}`);
      }
      return answer.status >= 500 || answer.status === 409 ? 'ambiguous' : 'refused';
    } catch (error) {
      if (error instanceof RangeError) throw error;
      this.#count(sending.projectId, sent);
      return isConnectionRefused(error) ? 'unsent' : 'ambiguous';
    }
  }

  #count(projectId: string, { status, retryAfter, isReplayed }: Sent): void {
    addOne(this.statuses, status);
    const ofProject = this.statusesByProject.get(projectId) ?? new Map<number, number>();
    this.statusesByProject.set(projectId, ofProject);
    addOne(ofProject, status);
    if (isReplayed) this.replayed += 1;
    if ((status === 429 || status === 503) && !/^[1-9]\d*$/.test(retryAfter ?? '')) this.unannounced += 1;
  }
}

function addOne(counts: Map<number, number>, status: number): void {
  counts.set(status, (counts.get(status) ?? 0) + 1);
}

/** Ledgers of the last day stay for whoever asks what happened: a test's process is not told when it ends. */
function makeLedgerDir(): string {
  const directory = join(tmpdir(), 'logpond-ledgers');
  mkdirSync(directory, { recursive: true });
  for (const name of readdirSync(directory)) {
    const file = join(directory, name);
    const ageMs = Date.now() - (statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? Infinity);
    if (ageMs > LEDGER_KEPT_MS) rmSync(file, { force: true });
  }
  return directory;
}

function isConnectionRefused(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof Error && 'code' in cause && cause.code === 'ECONNREFUSED';
}
