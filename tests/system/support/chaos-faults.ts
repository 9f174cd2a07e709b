import type { InsertOddity } from './fake-clickhouse.ts';
import type { Random } from './random.ts';
import { pickInteger } from './random.ts';

/**
 * What a chaos run does to an installation, drawn from a seed. Each lane (one process, one store, the network) draws
 * from a random of its own, so the order of faults in a lane is the same for the same seed, whatever the timing.
 */

const WORKER_POINTS = [
  'W1.after',
  'W2.after',
  'W2.decode',
  'W3.before',
  'W3.after',
  'W4.before',
  'W4.after',
  'W5.after',
  'W6.before',
  'W6.after',
  'W7.after',
  'W8.before',
  'W8.after',
] as const;
const API_POINTS = ['A3.before', 'A4.after', 'A5.before'] as const;

/** How long a lease lasts (packages/db/src/shard-leases.ts); a longer pause makes it a lie. */
const LEASE_MS = 3_000;
/** One that has not been reached by then (a verification without anything to verify, say) is given up. */
const FAILPOINT_MS_MAX = 8_000;

const WORKER_KILL = 'F02 worker kill -9';
const API_KILL = 'F05, F06 api kill -9';

/** What becomes of a process next. Times count from its start, or from the end of its last pause. */
export type ProcessFate =
  | { kind: 'kill'; fault: string; afterMs: number }
  /** Ends itself at a point of its code; one that is not reached within `withinMs` is killed instead. */
  | { kind: 'failpoint'; fault: string; spec: string; withinMs: number; otherwise: string }
  | { kind: 'pause'; fault: string; afterMs: number; forMs: number };

export type StoreFate =
  | { kind: 'kill' | 'power loss'; fault: string; afterMs: number; downMs: number }
  /** Refuses some requests, or answers late, for that long. */
  | { kind: 'refuses' | 'slow'; fault: string; afterMs: number; forMs: number }
  /** Treats one insert oddly; when none comes within `forMs`, a later one. */
  | { kind: 'odd'; fault: string; afterMs: number; forMs: number; oddity: InsertOddity };

export type NetworkFate = {
  fault: string;
  afterMs: number;
  forMs: number;
  /** Which of the proxies, as a share of their number. */
  at: number;
  how: 'cut' | 'reset' | 'black hole' | 'delay';
  delayMs: number;
};

export function drawWorkerFate(random: Random): ProcessFate {
  const kind = random();
  const afterMs = pickInteger(random, 1_000, 6_000);
  if (kind < 0.5) return { kind: 'kill', fault: WORKER_KILL, afterMs };
  if (kind < 0.9) {
    const point = pickOne(random, WORKER_POINTS);
    return drawFailpoint(random, `F01 worker killed at ${point}`, {
      point,
      hitsMax: 6,
      otherwise: WORKER_KILL,
    });
  }
  const forMs = LEASE_MS + pickInteger(random, 500, 2_500);
  return { kind: 'pause', fault: 'F03 worker paused longer than its lease', afterMs, forMs };
}

export function drawApiFate(random: Random): ProcessFate {
  const afterMs = pickInteger(random, 5_000, 15_000);
  if (random() < 0.4) return { kind: 'kill', fault: API_KILL, afterMs };
  const point = pickOne(random, API_POINTS);
  // Every request passes each point: with few hits an API would hardly ever live to answer one.
  return drawFailpoint(random, `F05, F06 api killed at ${point}`, {
    point,
    hitsMax: 60,
    otherwise: API_KILL,
  });
}

export function drawAlertWorkerFate(random: Random): ProcessFate {
  return { kind: 'kill', fault: 'alert worker kill -9', afterMs: pickInteger(random, 8_000, 25_000) };
}

export function drawRedisFate(random: Random): StoreFate {
  const isPowerLoss = random() < 0.4;
  return {
    kind: isPowerLoss ? 'power loss' : 'kill',
    fault: isPowerLoss ? 'F08 Redis power loss' : 'F07 Redis kill -9',
    afterMs: pickInteger(random, 11_000, 18_000),
    downMs: pickInteger(random, 20, 1_200),
  };
}

export function drawClickHouseFate(random: Random): StoreFate {
  const kind = random();
  const afterMs = pickInteger(random, 3_000, 10_000);
  const downMs = pickInteger(random, 100, 3_000);
  const forMs = pickInteger(random, 3_000, 8_000);
  if (kind < 0.2) return { kind: 'kill', fault: 'F25 ClickHouse kill -9', afterMs, downMs };
  if (kind < 0.35) return { kind: 'power loss', fault: 'F26 ClickHouse power loss', afterMs, downMs };
  if (kind < 0.5)
    return { kind: 'refuses', fault: 'F30 ClickHouse 30 % 500, 503, 429 and hang-ups', afterMs, forMs };
  if (kind < 0.57) return { kind: 'slow', fault: 'ClickHouse slow', afterMs, forMs };
  return { kind: 'odd', ...pickOne(random, ODD_FAULTS), afterMs, forMs };
}

type OddFault = { oddity: InsertOddity; fault: string };
const ODD_FAULTS: readonly [OddFault, ...OddFault[]] = [
  { oddity: 'apply then cut', fault: 'F21 ClickHouse stores, then cuts' },
  { oddity: 'cut, apply before the retry', fault: 'F22 ClickHouse cuts, stores late' },
  { oddity: 'cut, apply after the retry', fault: 'F22 ClickHouse cuts, stores late' },
  { oddity: 'say done, drop', fault: 'F23 ClickHouse says 200 and drops' },
  { oddity: 'say known, drop', fault: 'F24 ClickHouse says deduplicated, and it is not' },
];

export function drawNetworkFate(random: Random): NetworkFate {
  const how = pickOne<NetworkFate['how']>(random, ['cut', 'reset', 'black hole', 'delay']);
  const isInstant = how === 'cut' || how === 'reset';
  return {
    fault: NETWORK_FAULTS[how],
    afterMs: pickInteger(random, 2_000, 7_000),
    forMs: isInstant ? 0 : pickInteger(random, 300, 3_500),
    at: random(),
    how,
    delayMs: pickInteger(random, 20, 400),
  };
}

const NETWORK_FAULTS: Readonly<Record<NetworkFate['how'], string>> = {
  cut: 'F19 connections cut',
  reset: 'F19 connections reset',
  'black hole': 'connections swallow everything',
  delay: 'connections delayed',
};

function drawFailpoint(
  random: Random,
  fault: string,
  options: { point: string; hitsMax: number; otherwise: string },
): ProcessFate {
  const spec = `${options.point}:kill:${pickInteger(random, 1, options.hitsMax)}`;
  return { kind: 'failpoint', fault, spec, withinMs: FAILPOINT_MS_MAX, otherwise: options.otherwise };
}

function pickOne<Item>(random: Random, items: readonly [Item, ...Item[]]): Item {
  return items[pickInteger(random, 0, items.length - 1)] ?? items[0];
}
