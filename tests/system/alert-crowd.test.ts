import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { judgeCrowd, runCrowd } from './support/alert-crowd.ts';
import { judgeAlerts } from './support/alert-judge.ts';
import { measureLatency } from './support/alert-latency-run.ts';
import { AlertRig } from './support/alert-rig.ts';
import { chooseSeed } from './support/random.ts';

const SHARDS = 2;
const TENANTS_PER_SHARD = 5;
const RULES_PER_TENANT = 10;
const CROSSINGS = 20;
const CROSSINGS_PER_SECOND = 10;
const ENTRIES_PER_SECOND = 1_000;

let own: AlertRig;

beforeAll(async () => {
  own = await AlertRig.open({ shards: SHARDS });
  own.startWorker();
});
afterAll(async () => own[Symbol.asyncDispose]());

describe('many rules, made and deleted while entries flow', () => {
  it('each counts exactly what was sent between its 201 and its DELETE', async () => {
    const tenants = await own.createTenants(TENANTS_PER_SHARD);
    const seed = chooseSeed('alert-crowd');
    const known = await runCrowd(own, { tenants, rulesPerTenant: RULES_PER_TENANT, seed });
    await own.waitForRest();
    const crowd = await judgeCrowd(own, known);
    const verdict = await judgeAlerts({ rig: own.rig, api: own.alerts, tenants });
    process.stdout.write(`alert-crowd: ${JSON.stringify(crowd)} ${JSON.stringify(verdict)}\n`);
    expect(crowd).toMatchObject({ faults: [], rules: RULES_PER_TENANT * tenants.length });
    expect(crowd.deleted).toBe(crowd.rules / 2);
    expect(crowd.fired).toBeGreaterThan(crowd.rules / 3);
    expect(verdict.faults).toEqual([]);
  });
});

describe('crossings under load', () => {
  it('the mail of each arrives, with what fired in it', async () => {
    const tenants = await own.createTenants(1);
    const load = { crossingsPerSecond: CROSSINGS_PER_SECOND, entriesPerSecond: ENTRIES_PER_SECOND };
    const { fromAnswerMs } = await measureLatency(own, { tenants, crossings: CROSSINGS, ...load });
    process.stdout.write(`alert latency, ms from the 200: ${fromAnswerMs.join(' ')}\n`);
    expect(fromAnswerMs).toHaveLength(CROSSINGS);
    await own.waitForRest();
    const mails = own.smtp.mails;
    const verdict = await judgeAlerts({ rig: own.rig, api: own.alerts, tenants, mails });
    expect(verdict).toMatchObject({ faults: [], crossings: CROSSINGS, mails: CROSSINGS });
    const [mail] = mails;
    expect(mail?.subject).toMatch(/^\[FIRING\] Crossing \d+: \d+ ≥ 3 in 5m \(p\d+\)$/);
    expect(mail?.text).toContain('comes near');
  });
});

describe('the history of a project', () => {
  it('is the same in pages of any size', async () => {
    const [tenant] = await own.createTenants(1);
    if (tenant === undefined) throw new RangeError('expected a tenant');
    const condition = {
      field: 'service',
      operator: 'equals',
      value: 'paged',
      threshold: 1,
      timeWindow: '1h',
    };
    for (let rule = 0; rule < 7; rule += 1) {
      await own.alerts.createRule(tenant, {
        name: `Paged ${rule}`,
        enabled: true,
        condition,
        notifications: [],
      });
    }
    await own.alerts.send(tenant, [{ service: 'paged', level: 'info', message: 'all at once' }]);
    const whole = await waitFor('seven firings', async () => {
      const firings = await own.alerts.listHistory(tenant);
      return firings.length === 7 && firings;
    });
    for (const limit of [1, 2, 7]) expect(await own.alerts.listHistory(tenant, limit)).toEqual(whole);
  });
});
