import type { NetworkFate, ProcessFate, StoreFate } from './chaos-faults.ts';
import type { FaultLog } from './chaos-log.ts';
import { pause } from './chaos-process.ts';
import type { ChaosProcess } from './chaos-process.ts';
import type { ChaosProxy } from './chaos-proxy.ts';
import type { InsertOddity } from './fake-clickhouse.ts';

/**
 * A lane is one thing that goes wrong over and over: what goes wrong next is drawn, done, and put into the log. Each
 * ends soon after the signal is aborted and leaves its thing in order.
 */
type Lane = { log: FaultLog; signal: AbortSignal };

/** Another fault may keep a process from its work; then it has bad luck. */
const BEGIN_MS_MAX = 15_000;
const BEGIN_POLL_MS = 50;
const ODD_POLL_MS = 20;

/** Lets a process live and die. */
export async function runProcessLane(
  process: ChaosProcess,
  draw: () => ProcessFate,
  lane: Lane,
): Promise<void> {
  while (!lane.signal.aborted) {
    const fate = draw();
    await process.exclusively(async () => meetFate(process, fate, lane));
  }
  await process.exclusively(async () => {
    if (process.isArmed) await process.stop();
    process.start();
  });
}

async function meetFate(process: ChaosProcess, fate: ProcessFate, lane: Lane): Promise<void> {
  const { log, signal } = lane;
  if (fate.kind === 'failpoint') {
    // Arming needs a new process.
    if (await process.kill()) log.strike(fate.otherwise);
    process.start(fate.spec);
    await waitUntilBegun(process, signal);
    const hasEnded = await process.waitForEnd(fate.withinMs, signal);
    if (hasEnded && process.wasKilled) log.strike(fate.fault);
    else if (!hasEnded && !signal.aborted && (await process.kill())) log.strike(fate.otherwise);
    return;
  }
  process.start();
  await waitUntilBegun(process, signal);
  if (!(await pause(fate.afterMs, signal))) return;
  if (fate.kind === 'kill') {
    if (await process.kill()) log.strike(fate.fault);
    return;
  }
  process.signal('SIGSTOP');
  const injection = log.begin(fate.fault);
  await pause(fate.forMs, signal);
  process.signal('SIGCONT');
  injection.end();
}

/** On a busy machine a start takes long, and a process that never works cannot lose anything. */
async function waitUntilBegun(process: ChaosProcess, signal: AbortSignal): Promise<void> {
  const until = performance.now() + BEGIN_MS_MAX;
  while (process.isAlive && !process.hasBegun && performance.now() < until) {
    if (!(await pause(BEGIN_POLL_MS, signal))) return;
  }
}

/** What a lane can do to a store. */
export type StoreControl = {
  kill: () => Promise<void>;
  losePower: () => Promise<void>;
  start: () => Promise<void>;
  /** How it treats requests from now on. */
  disturb: (how: 'refuses' | 'slow' | undefined) => void;
  /** Treats one more insert so. */
  expectInsert: (oddity: InsertOddity) => void;
  /** How many inserts it has treated so. */
  countInserts: (oddity: InsertOddity) => number;
};

/** Kills a store, or makes it odd, over and over. */
export async function runStoreLane(store: StoreControl, draw: () => StoreFate, lane: Lane): Promise<void> {
  for (;;) {
    const fate = draw();
    if (!(await pause(fate.afterMs, lane.signal))) return;
    if (fate.kind === 'odd') {
      await waitForOddInsert(store, fate, lane);
      continue;
    }
    const injection = lane.log.begin(fate.fault);
    if ('forMs' in fate) {
      store.disturb(fate.kind);
      await pause(fate.forMs, lane.signal);
      store.disturb(undefined);
    } else {
      await (fate.kind === 'kill' ? store.kill() : store.losePower());
      await pause(fate.downMs, lane.signal);
      await store.start();
    }
    injection.end();
  }
}

/** Counts as injected when an insert came in time. */
async function waitForOddInsert(
  store: StoreControl,
  { fault, oddity, forMs }: Extract<StoreFate, { kind: 'odd' }>,
  { log, signal }: Lane,
): Promise<void> {
  const before = store.countInserts(oddity);
  store.expectInsert(oddity);
  const until = performance.now() + forMs;
  while (performance.now() < until && store.countInserts(oddity) === before) {
    if (!(await pause(ODD_POLL_MS, signal))) return;
  }
  if (store.countInserts(oddity) > before) log.strike(fault);
}

/** Cuts, swallows and delays what goes through one of the proxies, over and over. */
export async function runNetworkLane(
  proxies: readonly ChaosProxy[],
  draw: () => NetworkFate,
  lane: Lane,
): Promise<void> {
  const { log, signal } = lane;
  for (;;) {
    const fate = draw();
    if (!(await pause(fate.afterMs, signal))) return;
    const proxy = proxies[Math.floor(fate.at * proxies.length)];
    if (proxy === undefined) throw new RangeError('expected a proxy');
    const injection = log.begin(fate.fault);
    await disturb(proxy, fate, signal);
    injection.end();
  }
}

async function disturb(proxy: ChaosProxy, fate: NetworkFate, signal: AbortSignal): Promise<void> {
  switch (fate.how) {
    case 'cut':
      proxy.cut();
      return;
    case 'reset':
      proxy.reset();
      return;
    case 'black hole':
      proxy.blackHole(true);
      await pause(fate.forMs, signal);
      proxy.blackHole(false);
      return;
    case 'delay':
      proxy.delay(fate.delayMs);
      await pause(fate.forMs, signal);
      proxy.delay(0);
      return;
  }
}

/** Stops and starts all processes in turn, as a release does, over and over; each is ready before the next stops. */
export async function runReleaseLane(
  processes: readonly ChaosProcess[],
  options: { fault: string; everyMs: number },
  lane: Lane,
): Promise<void> {
  const { log, signal } = lane;
  while (await pause(options.everyMs, signal)) {
    const injection = log.begin(options.fault);
    for (const process of processes) {
      if (signal.aborted) break;
      await process.exclusively(async () => {
        await process.stop();
        process.start();
        await waitUntilBegun(process, signal);
      });
    }
    injection.end();
  }
}
