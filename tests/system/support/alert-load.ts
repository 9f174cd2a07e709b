import { Agent, request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import type { Tenant } from './rig.ts';

const TIMEOUT_MS = 15_000;
const IN_FLIGHT_MAX = 64;
const SERVICES = ['basket', 'search', 'web'];
const LEVELS = ['info', 'info', 'info', 'debug', 'warn', 'error'];

export type Load = AsyncDisposable & {
  /** Ends the load and waits for its last answers. */
  stop: () => Promise<LoadResult>;
};

export type LoadResult = {
  sent: number;
  acknowledged: number;
  /** Answers other than 200, by status; 0 for a broken connection. */
  refused: Map<number, number>;
};

/** Entries that no rule of the test matches, at a steady rate and by the clock: an answer is not waited for. */
export function startLoad(options: {
  url: string;
  tenants: readonly Tenant[];
  entriesPerSecond: number;
  rowsPerRequest: number;
}): Load {
  const { url, tenants, entriesPerSecond, rowsPerRequest } = options;
  const agent = new Agent({ keepAlive: true, maxSockets: IN_FLIGHT_MAX });
  const stopping = new AbortController();
  const result: LoadResult = { sent: 0, acknowledged: 0, refused: new Map() };
  const inFlight = new Set<Promise<void>>();
  const run = async (): Promise<void> => {
    const startedAt = performance.now();
    const intervalMs = (1_000 * rowsPerRequest) / entriesPerSecond;
    for (let index = 0; !stopping.signal.aborted; index += 1) {
      const earlyMs = startedAt + index * intervalMs - performance.now();
      if (earlyMs > 0) await delay(earlyMs);
      while (inFlight.size >= IN_FLIGHT_MAX) await Promise.race(inFlight);
      const tenant = tenants[index % tenants.length];
      if (tenant === undefined) throw new RangeError('expected a tenant');
      result.sent += rowsPerRequest;
      const sending = post(agent, url, tenant.apiKey, renderBody(index, rowsPerRequest)).then((status) => {
        if (status === 200) result.acknowledged += rowsPerRequest;
        else result.refused.set(status, (result.refused.get(status) ?? 0) + 1);
      });
      inFlight.add(sending);
      void sending.finally(() => inFlight.delete(sending));
    }
    await Promise.all(inFlight);
  };
  const work = run().finally(() => agent.destroy());
  // A failure is told by stop().
  work.catch(() => {});
  const stop = async (): Promise<LoadResult> => {
    stopping.abort();
    await work;
    return result;
  };
  return { stop, [Symbol.asyncDispose]: async () => void (await stop()) };
}

function renderBody(index: number, rows: number): Buffer {
  const logs = Array.from({ length: rows }, (_, row) => ({
    service: SERVICES[(index + row) % SERVICES.length],
    level: LEVELS[(index * 7 + row) % LEVELS.length],
    message: `request ${index}/${row} of the load was answered in ${(index * 31 + row) % 900} ms`,
    metadata: { path: `/api/v2/orders/${index}`, status: 200, took_ms: (index * 31 + row) % 900 },
  }));
  return Buffer.from(JSON.stringify({ logs }));
}

/** Never rejects: a connection that breaks is status 0. */
async function post(agent: Agent, url: string, apiKey: string, body: Buffer): Promise<number> {
  const { promise, resolve } = Promise.withResolvers<number>();
  const headers = { 'X-API-Key': apiKey, 'Content-Type': 'application/json', 'Content-Length': body.length };
  const options = { method: 'POST', agent, headers, timeout: TIMEOUT_MS };
  const call = request(`${url}/api/v1/ingest`, options, (answer) => {
    answer.resume();
    answer.on('error', () => resolve(0)).on('end', () => resolve(answer.statusCode ?? 0));
  });
  call.on('timeout', () => call.destroy());
  call.on('error', () => resolve(0));
  call.end(body);
  return promise;
}
