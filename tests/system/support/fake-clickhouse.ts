import { once } from 'node:events';
import { Agent, createServer, request as sendRequest } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { pickInteger } from './random.ts';
import type { Random } from './random.ts';

/** What it can do with an insert besides passing it on. */
export type InsertOddity =
  /** Lets it be applied, then cuts the connection. */
  | 'apply then cut'
  /** Cuts the connection, and has it applied just before the next insert with its token. */
  | 'cut, apply before the retry'
  /** Cuts the connection, and has it applied just after the next insert with its token. */
  | 'cut, apply after the retry'
  /** Says 200 and that the rows were written, and drops it. */
  | 'say done, drop'
  /** Says 200 and that no row was written, as for a known token, and drops it. */
  | 'say known, drop';

/** An answer instead of the real one; 'hang up' answers nothing. The insert is not applied. */
export type Refusal = 500 | 503 | 429 | 'hang up';
const REFUSALS: readonly Refusal[] = [500, 503, 429, 'hang up'];

/** How often which of them; of all requests, a read, an insert or a count. */
export type Trouble = {
  random: Random;
  /** Of each request, 0 to 1. */
  probability: number;
  refusals?: readonly Refusal[];
  /** Part of the refused inserts that are applied all the same before the answer; default a half. */
  appliedShare?: number;
};

type Insert = { path: string; headers: IncomingMessage['headers']; body: Buffer; token: string };
type Held = { insert: Insert; isBefore: boolean };

/** ClickHouse's own codes that go with a status. */
const CODES = { 500: 999, 503: 202, 429: 202 } as const;

/** An HTTP server in front of the real engine that passes everything on and answers oddly on command. */
export class FakeClickHouse implements AsyncDisposable {
  readonly url: string;
  /** What was done oddly, and how often. */
  readonly injected = new Map<InsertOddity | Refusal, number>();
  /** Tokens of the inserts into `logs` that came, in their order, retries too. */
  readonly tokens: string[] = [];
  readonly #server: Server;
  readonly #agent = new Agent({ keepAlive: true });
  readonly #target: URL;
  readonly #oddities: InsertOddity[] = [];
  #held: Held[] = [];
  #trouble: Trouble | undefined;
  #slowMs = 0;

  private constructor(server: Server, target: URL) {
    this.#server = server;
    this.#target = target;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    server.on('request', (req, res) => {
      // Whatever goes wrong here is a connection that broke.
      this.#answer(req, res).catch(() => res.destroy());
    });
  }

  /** Opens it before an engine. */
  static async open(engineUrl: string): Promise<FakeClickHouse> {
    const server = createServer({ requestTimeout: 0 });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new FakeClickHouse(server, new URL(engineUrl));
  }

  /** Treats the next inserts into `logs` so, one after the other; those behind them are passed on. */
  expectInserts(...oddities: readonly InsertOddity[]): void {
    this.#oddities.push(...oddities);
  }

  /** Refuses at random from now on; undefined: no longer. */
  disturb(trouble: Trouble | undefined): void {
    this.#trouble = trouble;
  }

  /** Every request waits so long before it is passed on; 0: no longer. */
  slowDown(ms: number): void {
    this.#slowMs = ms;
  }

  async #answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const path = req.url ?? '/';
    const token = readToken(path);
    if (this.#slowMs > 0) await delay(this.#slowMs);
    const refusal = this.#drawRefusal(path);
    if (refusal === undefined && token === undefined) {
      await this.#pass(path, req.method ?? 'GET', req.headers, req, res);
      return;
    }
    const body = await buffer(req);
    const insert = { path, headers: req.headers, body, token: token ?? '' };
    if (token !== undefined) this.tokens.push(token);
    if (refusal !== undefined) {
      const { random, appliedShare = 0.5 } = this.#trouble ?? {};
      if (token !== undefined && random !== undefined && random() < appliedShare) await this.#apply(insert);
      this.#refuse(refusal, res);
      return;
    }
    const oddity = this.#oddities.shift();
    if (oddity !== undefined) {
      this.#count(oddity);
      await this.#beOdd(oddity, insert, res);
      return;
    }
    await this.#applyHeld(insert.token, true);
    const answer = await this.#apply(insert);
    await this.#applyHeld(insert.token, false);
    res.writeHead(answer.status, answer.headers).end(answer.body);
  }

  async #beOdd(oddity: InsertOddity, insert: Insert, res: ServerResponse): Promise<void> {
    switch (oddity) {
      case 'apply then cut':
        await this.#apply(insert);
        res.destroy();
        return;
      case 'cut, apply before the retry':
      case 'cut, apply after the retry':
        this.#held.push({ insert, isBefore: oddity === 'cut, apply before the retry' });
        res.destroy();
        return;
      case 'say done, drop':
      case 'say known, drop': {
        const rows = oddity === 'say done, drop' ? '1000' : '0';
        const summary = { read_rows: rows, written_rows: rows, written_bytes: '0', result_rows: rows };
        res.writeHead(200, { 'X-ClickHouse-Summary': JSON.stringify(summary) }).end();
      }
    }
  }

  /** Inserts that were cut off and come late: those with this token, and of another token never. */
  async #applyHeld(token: string, isBefore: boolean): Promise<void> {
    const due = this.#held.filter((held) => held.insert.token === token && held.isBefore === isBefore);
    this.#held = this.#held.filter((held) => !due.includes(held));
    for (const { insert } of due) await this.#apply(insert);
  }

  /** The engine ended, and with it its connections: what was on its way there is lost. */
  forgetHeld(): void {
    this.#held = [];
  }

  /** How many inserts were cut off and not yet applied. */
  get waiting(): number {
    return this.#held.length;
  }

  #drawRefusal(path: string): Refusal | undefined {
    const trouble = this.#trouble;
    // A store that says no is still there: its health is another fault.
    if (trouble === undefined || path.startsWith('/ping')) return undefined;
    const { random, probability, refusals = REFUSALS } = trouble;
    if (random() >= probability) return undefined;
    return refusals[pickInteger(random, 0, refusals.length - 1)];
  }

  #refuse(refusal: Refusal, res: ServerResponse): void {
    this.#count(refusal);
    if (refusal === 'hang up') {
      res.destroy();
      return;
    }
    const code = CODES[refusal];
    res
      .writeHead(refusal, { 'Content-Type': 'text/plain', 'X-ClickHouse-Exception-Code': String(code) })
      .end(`Code: ${code}. DB::Exception: This server was told to refuse. (FAKE)\n`);
  }

  #count(what: InsertOddity | Refusal): void {
    this.injected.set(what, (this.injected.get(what) ?? 0) + 1);
  }

  /** Sends an insert to the engine and reads its answer to the end. */
  async #apply({ path, headers, body }: Insert): Promise<Answer> {
    const out = this.#open(path, 'POST', { ...headers, 'content-length': String(body.length) });
    out.end(body);
    const [answer] = (await once(out, 'response')) as [IncomingMessage];
    return {
      status: answer.statusCode ?? 502,
      headers: withoutHops(answer.headers),
      body: await buffer(answer),
    };
  }

  async #pass(
    path: string,
    method: string,
    headers: IncomingMessage['headers'],
    req: IncomingMessage,
    res: ServerResponse,
  ): Promise<void> {
    const out = this.#open(path, method, headers);
    req.pipe(out);
    res.once('close', () => out.destroy());
    const [answer] = (await once(out, 'response')) as [IncomingMessage];
    res.writeHead(answer.statusCode ?? 502, withoutHops(answer.headers));
    answer.pipe(res);
    answer.once('error', () => res.destroy());
  }

  #open(path: string, method: string, headers: IncomingMessage['headers']): ReturnType<typeof sendRequest> {
    const { hostname, port } = this.#target;
    const out = sendRequest({
      hostname,
      port,
      path,
      method,
      headers: withoutHops(headers),
      agent: this.#agent,
    });
    // Told by the wait for the response; one after that concerns nobody.
    out.on('error', () => {});
    return out;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    this.#agent.destroy();
    await once(this.#server, 'close');
  }
}

type Answer = { status: number; headers: IncomingMessage['headers']; body: Buffer };

/** Of an insert into the log entries; undefined for everything else. */
function readToken(path: string): string | undefined {
  const params = new URL(path, 'http://fake').searchParams;
  const isInsert = /^\s*INSERT INTO logs\b/.test(params.get('query') ?? '');
  return isInsert ? (params.get('insert_deduplication_token') ?? '') : undefined;
}

/** What concerns one connection only. */
function withoutHops(headers: IncomingMessage['headers']): IncomingMessage['headers'] {
  const kept = { ...headers };
  for (const name of ['connection', 'keep-alive', 'transfer-encoding', 'host', 'expect']) delete kept[name];
  return kept;
}
