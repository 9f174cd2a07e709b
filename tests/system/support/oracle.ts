import { setTimeout as delay } from 'node:timers/promises';
import type { Tenant } from './rig.ts';
import { renderEntry } from './oracle-entry.ts';

const REQUEST_TIMEOUT_MS = 15_000;
const RESEND_PAUSE_MS = 50;

/** What one sending of a request came to. A 503 and a broken connection are ambiguous: stored or not. */
type Outcome = 'acknowledged' | 'refused' | 'ambiguous';

/** One request in the ledger, with the outcomes of all its sendings. */
export type LedgerRequest = {
  number: number;
  tenant: Tenant;
  rows: number;
  timeMs: number;
  /** With an Idempotency-Key every sending counts as one. */
  isKeyed: boolean;
  outcomes: Outcome[];
};

export type LoadOptions = {
  /** Requests under way at once. */
  concurrency: number;
  rowsPerRequest: number;
  /** Pause of each sender between two requests. */
  pauseMs?: number;
  isKeyed: boolean;
  /** Sendings of one request that may end without a clear answer; after those it is left alone. */
  ambiguousMax?: number;
};

/**
 * Issues numbered entries to several projects and keeps a ledger of what was promised for each, for the judge.
 */
export class Oracle {
  readonly run: string;
  readonly tenants: readonly Tenant[];
  readonly ledger: LedgerRequest[] = [];
  /** Answers by status; 0 stands for a connection that broke or was refused. */
  readonly statuses = new Map<number, number>();
  /** Receipts that were replayed. */
  replayed = 0;
  #url: string;

  constructor(options: { run: string; tenants: readonly Tenant[]; url: string }) {
    this.run = `${options.run}-${crypto.randomUUID().slice(0, 8)}`;
    this.tenants = options.tenants;
    this.#url = options.url;
  }

  /** Another API to send to from now on. */
  set url(url: string) {
    this.#url = url;
  }

  get acknowledgedRows(): number {
    return this.ledger.reduce((sum, request) => sum + (isAcknowledged(request) ? request.rows : 0), 0);
  }

  /** Sends one request, again and again until it is answered clearly or the tries are used up. */
  async send(
    tenant: Tenant,
    options: { rows: number; isKeyed: boolean; ambiguousMax?: number; signal?: AbortSignal },
  ): Promise<LedgerRequest> {
    const { rows, isKeyed, ambiguousMax = Infinity, signal } = options;
    const request: LedgerRequest = {
      number: this.ledger.length,
      tenant,
      rows,
      timeMs: Date.now(),
      isKeyed,
      outcomes: [],
    };
    this.ledger.push(request);
    const body = this.#render(request);
    for (;;) {
      const outcome = await this.#post(request, body);
      if (outcome !== 'unsent') request.outcomes.push(outcome);
      if (outcome === 'acknowledged' || outcome === 'refused' || signal?.aborted) return request;
      if (request.outcomes.length >= ambiguousMax) return request;
      await delay(RESEND_PAUSE_MS);
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

  #render(request: LedgerRequest): string {
    const entries = Array.from({ length: request.rows }, (_, row) =>
      JSON.stringify(renderEntry({ run: this.run, request: request.number, row }, request.timeMs)),
    );
    return `{"logs":[${entries.join(',')}]}`;
  }

  async #post(request: LedgerRequest, body: string): Promise<Outcome | 'unsent'> {
    const headers: Record<string, string> = {
      'Content-Type': 'application/json',
      'X-API-Key': request.tenant.apiKey,
    };
    if (request.isKeyed) headers['Idempotency-Key'] = `${this.run}-${request.number}`;
    try {
      const answer = await fetch(`${this.#url}/api/v1/ingest`, {
        method: 'POST',
        headers,
        body,
        signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
      });
      this.#count(answer.status);
      const receipt = (await answer.json()) as { received?: number };
      if (answer.headers.get('idempotency-replayed') === 'true') this.replayed += 1;
      if (answer.status === 200) {
        if (receipt.received === request.rows) return 'acknowledged';
        throw new RangeError(`expected ${request.rows} received, got ${JSON.stringify(receipt)}`);
      }
      return answer.status >= 500 || answer.status === 409 ? 'ambiguous' : 'refused';
    } catch (error) {
      if (error instanceof RangeError) throw error;
      this.#count(0);
      return isConnectionRefused(error) ? 'unsent' : 'ambiguous';
    }
  }

  #count(status: number): void {
    this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1);
  }
}

export function isAcknowledged(request: LedgerRequest): boolean {
  return request.outcomes.includes('acknowledged');
}

function isConnectionRefused(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof Error && 'code' in cause && cause.code === 'ECONNREFUSED';
}
