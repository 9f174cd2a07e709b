import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import type { ChaosProxy } from './support/chaos-proxy.ts';
import { judge } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { chooseSeed, createRandom } from './support/random.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess } from './support/rig.ts';

const FAULT_PROBABILITY = 0.01;
const ROWS = 20;

let rig: Rig;
let api: ApiProcess;

beforeAll(async () => {
  rig = await Rig.open({ shards: 2, isProxied: true });
  await rig.createTenants(1);
  rig.startWorker();
  api = await rig.startApi();
});
afterAll(async () => rig[Symbol.asyncDispose]());

/** What a network does to all connections of one kind, and how it is ended. */
const WEATHER: { name: string; begin: (proxy: ChaosProxy) => void; end: (proxy: ChaosProxy) => void }[] = [
  { name: 'a black hole', begin: (proxy) => proxy.blackHole(true), end: (proxy) => proxy.blackHole(false) },
  { name: 'a reset', begin: (proxy) => proxy.reset(), end: () => {} },
  { name: 'a delay', begin: (proxy) => proxy.delay(300), end: (proxy) => proxy.delay(0) },
  { name: 'a trickle', begin: (proxy) => proxy.drip(20_000), end: (proxy) => proxy.drip(0) },
];

describe('F19: the network between every process and its stores', () => {
  it('cuts requests and answers at random, swallows, delays and drips: stored once with a key, never lost', async () => {
    const random = createRandom(chooseSeed('F19'));
    const proxies = Object.values(rig.proxies);
    const keyed = new Oracle({ run: 'f19-keyed', tenants: await rig.createTenants(1), url: api.url });
    const unkeyed = new Oracle({ run: 'f19', tenants: await rig.createTenants(1), url: api.url });
    const options = { concurrency: 2, rowsPerRequest: ROWS, pauseMs: 10 };
    await using keyedLoad = keyed.startLoad({ ...options, isKeyed: true });
    await using unkeyedLoad = unkeyed.startLoad({ ...options, isKeyed: false, ambiguousMax: 2 });
    for (const proxy of proxies) proxy.misbehave({ random, probability: FAULT_PROBABILITY });
    for (const { name, begin, end } of WEATHER) {
      for (const proxy of proxies) begin(proxy);
      const sent = countAnswers(keyed);
      await waitFor(`an answer during ${name}`, () => countAnswers(keyed) > sent, 30_000);
      for (const proxy of proxies) end(proxy);
      const before = keyed.acknowledgedRows;
      await waitFor(`progress after ${name}`, () => keyed.acknowledgedRows > before + 10 * ROWS, 60_000);
    }
    const countFaults = (): number =>
      proxies.flatMap(({ injected }) => [...injected.values()]).reduce((sum, times) => sum + times, 0);
    await waitFor('faults at random', () => countFaults() >= 20, 60_000);
    for (const proxy of proxies) proxy.misbehave(undefined);
    await Promise.all([keyedLoad.stop(), unkeyedLoad.stop()]);
    expect(new Set([...keyed.statuses.keys(), ...unkeyed.statuses.keys()])).toEqual(new Set([200, 503]));
    await rig.waitForRest();
    for (const oracle of [keyed, unkeyed]) {
      const verdict = await judge(rig, oracle, api.url);
      process.stdout.write(
        `${oracle.run}: ${JSON.stringify(verdict)} ${JSON.stringify([...oracle.statuses])}\n`,
      );
      expect(verdict).toMatchObject({ faults: [], lost: 0, duplicated: 0 });
    }
  });
});

function countAnswers({ statuses }: Oracle): number {
  return [...statuses.values()].reduce((sum, times) => sum + times, 0);
}
