import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AppProcess } from '../support/app-process.ts';
import { waitFor } from '../support/wait.ts';
import { judge } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess } from './support/rig.ts';

const ROUNDS = 5;
const PASSED_ON = ['content-type', 'x-api-key', 'idempotency-key'] as const;

/**
 * Spreads requests over several APIs by turns, over kept connections. As an orchestrator does, one that is told to
 * stop gets no new requests from that moment; what is under way there it must answer. Every failure of a connection
 * is written down and answered with 502.
 */
class Balancer implements AsyncDisposable {
  readonly url: string;
  readonly answers = new Map<number, number>();
  readonly failures: string[] = [];
  readonly #server: Server;
  readonly #backends: Set<string>;
  #turn = 0;

  private constructor(server: Server, backends: readonly string[]) {
    this.#server = server;
    this.#backends = new Set(backends);
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      void this.#pass(request, response);
    });
  }

  static async open(backends: readonly string[]): Promise<Balancer> {
    const server = createServer({ keepAliveTimeout: 60_000 });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new Balancer(server, backends);
  }

  remove(backend: string): void {
    this.#backends.delete(backend);
  }

  add(backend: string): void {
    this.#backends.add(backend);
  }

  async #pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await buffer(request);
    const headers = PASSED_ON.flatMap((name): [string, string][] => {
      const value = request.headers[name];
      return typeof value === 'string' ? [[name, value]] : [];
    });
    this.#turn += 1;
    const backend = [...this.#backends][this.#turn % this.#backends.size] ?? '';
    try {
      const init = { method: request.method ?? 'POST', headers, body };
      const answer = await fetch(`${backend}${request.url ?? ''}`, init);
      this.answers.set(answer.status, (this.answers.get(answer.status) ?? 0) + 1);
      const retryAfter = answer.headers.get('retry-after');
      if (retryAfter !== null) response.setHeader('Retry-After', retryAfter);
      response.writeHead(answer.status, { 'Content-Type': 'application/json' });
      response.end(Buffer.from(await answer.arrayBuffer()));
    } catch (error) {
      this.failures.push(codeOf(error));
      response.writeHead(502, { 'Content-Type': 'application/json' }).end('{}');
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

function codeOf(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof Error && 'code' in cause ? String(cause.code) : String(error);
}

let rig: Rig;
let apis: ApiProcess[];
let workers: AppProcess[];

beforeAll(async () => {
  rig = await Rig.open({ shards: 4 });
  workers = [rig.startWorker(), rig.startWorker()];
  apis = await Promise.all([rig.startApi(), rig.startApi()]);
});
afterAll(async () => rig[Symbol.asyncDispose]());

async function restartApis(balancer: Balancer): Promise<void> {
  for (const [place, api] of apis.entries()) {
    balancer.remove(api.url);
    expect(await api.stop()).toBe(0);
    apis[place] = await rig.startApi({}, api.port);
    balancer.add(api.url);
  }
}

async function restartWorkers(): Promise<void> {
  for (const [place, worker] of workers.entries()) {
    expect(await worker.stop()).toBe(0);
    workers[place] = rig.startWorker();
    await waitFor('both workers to hold shards', async () => (await rig.countLeases()).length === 2);
  }
}

describe('F50: two APIs and two workers restarted one by one, five times, under load', () => {
  it('only 200 and 503 with Retry-After, no broken connection, nothing lost, nothing duplicated', async () => {
    await using balancer = await Balancer.open(apis.map(({ url }) => url));
    const oracle = new Oracle({ run: 'f50', tenants: await rig.createTenants(1), url: balancer.url });
    await using load = oracle.startLoad({ concurrency: 6, rowsPerRequest: 20, pauseMs: 10, isKeyed: false });
    for (let round = 0; round < ROUNDS; round += 1) {
      const before = oracle.acknowledgedRows;
      await Promise.all([restartApis(balancer), restartWorkers()]);
      expect(oracle.acknowledgedRows).toBeGreaterThan(before);
    }
    await load.stop();
    await rig.waitForRest();
    const verdict = await judge(rig, oracle, apis[0]?.url ?? '');
    process.stdout.write(`F50: ${JSON.stringify([...balancer.answers])}, ${JSON.stringify(verdict)}\n`);
    expect(balancer.failures).toEqual([]);
    expect([...balancer.answers.keys()].filter((status) => status !== 200 && status !== 503)).toEqual([]);
    expect(oracle.unannounced).toBe(0);
    expect(verdict).toMatchObject({ faults: [], stored: verdict.acknowledged, extraCopies: 0 });
    for (const { received, stored, pending } of await rig.readAccounts()) {
      expect({ received, pending }).toEqual({ received: stored, pending: 0 });
    }
  });
});
