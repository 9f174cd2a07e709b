import { setTimeout as delay } from 'node:timers/promises';
import { waitFor } from '../../support/wait.ts';
import type { RuleDraft } from './alert-api.ts';
import { startLoad } from './alert-load.ts';
import type { LoadResult } from './alert-load.ts';
import type { AlertRig } from './alert-rig.ts';
import type { OwnedTenant } from './rig-tenants.ts';

const ROWS_PER_REQUEST = 50;
const BEFORE_MS = 2_000;
const MAIL_MS_MAX = 30_000;

export type LatencyOptions = {
  tenants: readonly OwnedTenant[];
  crossings: number;
  crossingsPerSecond: number;
  /** Of the load beside. */
  entriesPerSecond: number;
};

/** Milliseconds from the sending, and from the 200, of the entry that made a rule cross to its mail's arrival. */
export type Latency = { fromSendMs: number[]; fromAnswerMs: number[]; load: LoadResult };

/** Rules that the digest answers and rules that read messages, in turns. */
function draftRule(index: number): RuleDraft {
  const service = `crossing-${index}`;
  const condition =
    index % 2 === 0
      ? { field: 'level', operator: 'gte', value: 'error' }
      : { field: 'message', operator: 'contains', value: `CROSSING ${index} ` };
  return {
    name: `Crossing ${index}`,
    enabled: true,
    ...(index % 2 === 0 ? { service } : {}),
    condition: { ...condition, threshold: 3, timeWindow: '5m' },
    notifications: [{ type: 'email', config: { recipients: [recipientOf(index)] } }],
  };
}

function recipientOf(index: number): string {
  return `crossing-${index}@example.com`;
}

/**
 * Lets different rules cross, one after the other, under a steady load, and takes the time until each one's mail has
 * arrived whole. An alert worker must run.
 *
 * @throws {Error} when a mail does not arrive within 30 s.
 */
export async function measureLatency(own: AlertRig, options: LatencyOptions): Promise<Latency> {
  const { tenants, crossings, crossingsPerSecond, entriesPerSecond } = options;
  const tenantOf = (index: number): OwnedTenant => {
    const tenant = tenants[index % tenants.length];
    if (tenant === undefined) throw new RangeError('expected a tenant');
    return tenant;
  };
  const entry = (index: number): { service: string; level: string; message: string } => ({
    service: `crossing-${index}`,
    level: 'error',
    message: `crossing ${index} comes near`,
  });
  for (let index = 0; index < crossings; index += 1) {
    await own.alerts.createRule(tenantOf(index), draftRule(index));
    await own.alerts.send(tenantOf(index), [entry(index), entry(index)]);
  }
  await using load = startLoad({
    url: own.api.url,
    tenants,
    entriesPerSecond,
    rowsPerRequest: ROWS_PER_REQUEST,
  });
  await delay(BEFORE_MS);
  const moments: { sentAtMs: number; answeredAtMs: number }[] = [];
  const startedAt = performance.now();
  await Promise.all(
    Array.from({ length: crossings }, async (_, index) => {
      await delay(Math.max(0, startedAt + (1_000 * index) / crossingsPerSecond - performance.now()));
      const sentAtMs = Date.now();
      await own.alerts.send(tenantOf(index), [entry(index)]);
      moments[index] = { sentAtMs, answeredAtMs: Date.now() };
    }),
  );
  const arrivals = await waitForMails(own, crossings);
  return {
    fromSendMs: moments.map(({ sentAtMs }, index) => (arrivals[index] ?? Number.NaN) - sentAtMs),
    fromAnswerMs: moments.map(({ answeredAtMs }, index) => (arrivals[index] ?? Number.NaN) - answeredAtMs),
    load: await load.stop(),
  };
}

/** When the first mail of each came. */
async function waitForMails(own: AlertRig, crossings: number): Promise<number[]> {
  const arrivals = new Map<string, number>();
  await waitFor(
    `the mails of ${crossings} crossings`,
    () => {
      for (const { recipient, arrivedAtMs } of own.smtp.mails)
        if (!arrivals.has(recipient)) arrivals.set(recipient, arrivedAtMs);
      const missing = Array.from({ length: crossings }, (_, index) => index).filter(
        (index) => !arrivals.has(recipientOf(index)),
      );
      if (missing.length > 0)
        throw new Error(`no mail of ${missing.length} crossings: ${missing.slice(0, 10).join(' ')}`);
      return true;
    },
    MAIL_MS_MAX,
  );
  return Array.from({ length: crossings }, (_, index) => arrivals.get(recipientOf(index)) ?? Number.NaN);
}
