import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import type { AppProcess } from '../../support/app-process.ts';
import type { AlertRig } from './alert-rig.ts';
import { pickInteger } from './random.ts';
import type { Random } from './random.ts';
import type { OwnedTenant } from './rig-tenants.ts';

/** Where the evaluator and the relay of the alert worker may die (F46). */
export const WORKER_POINTS = [
  'E1.after',
  'E2.before',
  'E2.after',
  'E3.before',
  'E3.after',
  'E4.after',
] as const;
/** Where its notifier may (F47). */
export const NOTIFIER_POINTS = ['N1.before', 'N1.after', 'N2.after'] as const;

/** The first read of a worker and its first count say little; the later ones meet it amid entries. */
const NTH_MAX = 3;
const DEATH_MS_MAX = 40_000;
const BEAT_MS = 40;

export type Death = { point: string; nth: number };

/** Each point `times` times, in random order; points of the evaluator also at a later passing. */
export function planDeaths(points: readonly string[], times: number, random: Random): Death[] {
  const deaths = points.flatMap((point) =>
    Array.from({ length: times }, () => ({
      point,
      nth: point.startsWith('E1') || point.startsWith('E2') ? pickInteger(random, 1, NTH_MAX) : 1,
    })),
  );
  return deaths
    .map((death) => ({ death, order: random() }))
    .toSorted((a, b) => a.order - b.order)
    .map(({ death }) => death);
}

/**
 * Lets one alert worker after the other die, each at its point, while entries flow: each finds what the one before
 * left. For each there is a new rule that crosses once, with a recipient of its own, beside rules that cross again
 * and again.
 *
 * @returns the points at which workers died.
 */
export async function runDeaths(
  own: AlertRig,
  tenants: readonly OwnedTenant[],
  deaths: readonly Death[],
  options: { random: Random; onDeath?: (death: Death, index: number) => void },
): Promise<Map<string, number>> {
  const { alerts } = own;
  const counts = new Map<string, number>();
  for (const tenant of tenants) {
    await alerts.createRule(tenant, {
      name: 'again and again',
      enabled: true,
      condition: { field: 'level', operator: 'equals', value: 'error', threshold: 8, timeWindow: '1s' },
      notifications: [],
    });
  }
  for (const [index, death] of deaths.entries()) {
    const { point, nth } = death;
    const tenant = tenants[index % tenants.length];
    if (tenant === undefined) throw new RangeError('expected a tenant');
    const threshold = pickInteger(options.random, 1, 5);
    const service = `victim-${index}`;
    await alerts.createRule(tenant, {
      name: `dies at ${point}`,
      enabled: true,
      condition: { field: 'service', operator: 'equals', value: service, threshold, timeWindow: '5m' },
      notifications: [{ type: 'email', config: { recipients: [`${service}@example.com`] } }],
    });
    const worker = own.startWorker({ FAILPOINT: `${point}:kill:${nth}` });
    // Every other worker meets silence, so that the rules of this kind resolve.
    const isLoud = index % 2 === 0;
    await sendUntilDead(worker, alerts, {
      tenant,
      tenants,
      service,
      least: threshold,
      isLoud,
      random: options.random,
    });
    if (worker.child.signalCode !== 'SIGKILL')
      throw new Error(
        `expected the worker to die at ${point} (${nth}), it wrote: ${worker.output().slice(-3_000)}`,
      );
    await own.killWorkers();
    counts.set(point, (counts.get(point) ?? 0) + 1);
    options.onDeath?.(death, index);
  }
  return counts;
}

type Flow = {
  tenant: OwnedTenant;
  tenants: readonly OwnedTenant[];
  service: string;
  least: number;
  isLoud: boolean;
  random: Random;
};

/** Sends until the worker is gone, at least what makes the new rule cross. */
async function sendUntilDead(
  worker: AppProcess,
  alerts: AlertRig['alerts'],
  { tenant, tenants, service, least, isLoud, random }: Flow,
): Promise<void> {
  const gone = once(worker.child, 'exit');
  const isGone = (): boolean => worker.child.exitCode !== null || worker.child.signalCode !== null;
  const deadline = performance.now() + DEATH_MS_MAX;
  let crossing = 0;
  while (!isGone() || crossing < least) {
    if (performance.now() > deadline) {
      await worker.stop();
      break;
    }
    await alerts.send(tenant, [{ service, level: 'info', message: `crossing ${crossing}` }]);
    crossing += 1;
    for (const other of isLoud ? tenants : []) {
      const rows = pickInteger(random, 1, 4);
      const entry = { service: 'others', level: 'error', message: 'again' };
      await alerts.send(
        other,
        Array.from({ length: rows }, () => entry),
      );
    }
    await delay(BEAT_MS);
  }
  await gone;
}
