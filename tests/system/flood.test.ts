import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { judge } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import type { SendOptions } from './support/oracle.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess, Tenant } from './support/rig.ts';

/** The least that may be set. */
const BUDGET_BYTES = 16_777_216;
/** So that entries take up in the stream what they take up in the request. */
const NOISE_BYTES = 1_000;
const FLOOD_ROWS = 500;
const OTHER_ROWS = 5;
const FLOOD_SENDERS = 4;
const REFUSALS_MIN = 20;
const REQUESTS_MAX = 2_000;

let rig: Rig;
let api: ApiProcess;

beforeAll(async () => {
  rig = await Rig.open({ shards: 1, env: { REDIS_BUDGET_BYTES: String(BUDGET_BYTES) } });
  rig.startWorker();
  await rig.createTenants(1);
  api = await rig.startApi();
});
afterAll(async () => rig[Symbol.asyncDispose]());

describe('F41: one project floods while ClickHouse is down', () => {
  it('only the flooder gets 429, with Retry-After, and again 200 once its backlog is stored', async () => {
    const tenants = await rig.createTenants(4);
    const [flooder, ...others] = tenants as [Tenant, ...Tenant[]];
    const oracle = new Oracle({ run: 'f41', tenants, url: api.url, noiseBytes: NOISE_BYTES });
    await rig.killClickHouse();
    await flood(oracle, flooder, others);
    expect([...(oracle.statusesByProject.get(flooder.projectId)?.keys() ?? [])]).toEqual([200, 429]);
    for (const { projectId } of others)
      expect([...(oracle.statusesByProject.get(projectId)?.keys() ?? [])]).toEqual([200]);
    expect(oracle.unannounced).toBe(0);
    await rig.startClickHouse();
    await rig.waitForRest();
    await waitFor('the flooder to be let in again', async () => {
      return (await oracle.send(flooder, { rows: 1, isKeyed: true })).status === 200;
    });
    await rig.waitForRest();
    await waitFor('expensive queries to be answered again', async () => (await chart(flooder)) === 200);
    expect(await judge(rig, oracle, api.url)).toMatchObject({ faults: [], lost: 0, duplicated: 0 });
  });
});

/** The status of a chart over more than a day with an odd interval, which is shed while too much waits. */
async function chart({ apiKey }: Tenant): Promise<number> {
  const params = new URLSearchParams({
    from: new Date(Date.now() - 90_000_000).toISOString(),
    interval: '7m',
  });
  const url = `${api.url}/api/v1/logs/aggregated?${params.toString()}`;
  const answer = await fetch(url, { headers: { 'X-API-Key': apiKey }, signal: AbortSignal.timeout(10_000) });
  await answer.body?.cancel();
  return answer.status;
}

/** Sends as fast as it can for one project, now and then for the others, until the one was refused often enough. */
async function flood(oracle: Oracle, flooder: Tenant, others: readonly Tenant[]): Promise<void> {
  const floodOptions: SendOptions = { rows: FLOOD_ROWS, isKeyed: false, ambiguousMax: 1 };
  const refusals = (): number => oracle.statusesByProject.get(flooder.projectId)?.get(429) ?? 0;
  let sent = 0;
  const keepSending = async (): Promise<void> => {
    while (refusals() < REFUSALS_MIN) {
      sent += 1;
      if (sent > REQUESTS_MAX) throw new Error(`expected 429 within ${REQUESTS_MAX} requests`);
      await oracle.send(flooder, floodOptions);
      const other = others[sent % others.length];
      if (sent % 5 === 0 && other !== undefined)
        await oracle.send(other, { rows: OTHER_ROWS, isKeyed: true, ambiguousMax: 1 });
      if (oracle.statuses.has(503)) throw new Error('expected 429 for the flooder before 503 for anybody');
    }
  };
  await Promise.all(Array.from({ length: FLOOD_SENDERS }, keepSending));
}
