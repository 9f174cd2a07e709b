import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import type { RuleDraft } from './support/alert-api.ts';
import { judgeAlerts } from './support/alert-judge.ts';
import { NOTIFIER_POINTS, planDeaths, runDeaths, WORKER_POINTS } from './support/alert-killing.ts';
import { AlertRig } from './support/alert-rig.ts';
import { createRandom } from './support/random.ts';
import type { OwnedTenant } from './support/rig-tenants.ts';

const SEED = 5;
const TIMES = 2;
/** A killed notifier's mail is taken up again when the time of its lock is over. */
const MAIL_MS_MAX = 40_000;

let own: AlertRig;

beforeAll(async () => {
  own = await AlertRig.open({ shards: 2 });
});
afterEach(async () => own.killWorkers());
afterAll(async () => own[Symbol.asyncDispose]());

function draftRule(service: string, threshold: number, timeWindow = '5m'): RuleDraft {
  return {
    name: `Errors of ${service}`,
    enabled: true,
    condition: { field: 'service', operator: 'equals', value: service, threshold, timeWindow },
    notifications: [{ type: 'email', config: { recipients: [`${service}@example.com`] } }],
  };
}

async function sendMany(tenant: OwnedTenant, service: string, count: number): Promise<void> {
  const entry = { service, level: 'error', message: 'it broke' };
  await own.alerts.send(
    tenant,
    Array.from({ length: count }, () => entry),
  );
}

async function waitForMail(recipient: string, timeoutMs = MAIL_MS_MAX): Promise<void> {
  await waitFor(
    `a mail to ${recipient}`,
    () => own.smtp.mails.some((mail) => mail.recipient === recipient),
    timeoutMs,
  );
}

/** Waits until everything has come through, and asks the judge about all that this file ever sent. */
async function judgeAll(recipients: readonly string[]): ReturnType<typeof judgeAlerts> {
  for (const recipient of recipients) await waitForMail(recipient);
  await own.waitForRest();
  const { rig, alerts: api, tenants, smtp } = own;
  return judgeAlerts({ rig, api, tenants, mails: smtp.mails });
}

describe('F46, F47: the alert worker and its notifier die at each step', () => {
  it(`each point ${TIMES} times: no crossing lost, none twice, mails repeat only with their Message-ID`, async () => {
    const random = createRandom(Number(process.env['SEED'] ?? SEED));
    const tenants = await own.createTenants(1);
    const deaths = planDeaths([...WORKER_POINTS, ...NOTIFIER_POINTS], TIMES, random);
    const counts = await runDeaths(own, tenants, deaths, { random });
    own.startWorker();
    const recipients = deaths.map((_, index) => `victim-${index}@example.com`);
    const verdict = await judgeAll(recipients);
    process.stdout.write(`F46, F47: ${JSON.stringify([...counts])} ${JSON.stringify(verdict)}\n`);
    expect(verdict).toMatchObject({ faults: [], lost: 0, surplus: 0 });
    expect(verdict.crossings).toBeGreaterThan(deaths.length);
  });
});

describe('F48: the connection to the mail server is cut before its 250', () => {
  it('the mail is sent again, with the same Message-ID', async () => {
    const [tenant] = await own.createTenants(1);
    if (tenant === undefined) throw new RangeError('expected a tenant');
    own.startWorker();
    await own.alerts.createRule(tenant, draftRule('cut', 3));
    own.smtp.cutBeforeReply(1);
    await sendMany(tenant, 'cut', 3);
    await waitFor('the mail twice', () => own.smtp.mails.filter(isToCut).length === 2, MAIL_MS_MAX);
    const [first, second] = own.smtp.mails.filter(isToCut);
    expect(second?.messageId).toBe(first?.messageId);
    expect((await judgeAll(['cut@example.com'])).faults).toEqual([]);
  });
});

describe('Redis is killed while entries are counted', () => {
  it('each entry that was acknowledged is counted once, each crossing is told once', async () => {
    const tenants = await own.createTenants(1);
    const random = createRandom(SEED);
    own.startWorker();
    for (const [index, tenant] of tenants.entries()) {
      await own.alerts.createRule(tenant, draftRule(`redis-${index}`, 150));
      await own.alerts.createRule(tenant, { ...draftRule(`redis-${index}`, 10, '1s'), notifications: [] });
    }
    for (let kills = 0; kills < 3; kills += 1) {
      for (let batch = 0; batch < 10; batch += 1) {
        for (const [index, tenant] of tenants.entries())
          await sendMany(tenant, `redis-${index}`, 1 + Math.floor(random() * 12));
      }
      await own.rig.killRedis();
      await own.rig.startRedis();
      await own.rig.waitUntilAdmitting();
    }
    for (const [index, tenant] of tenants.entries()) await sendMany(tenant, `redis-${index}`, 150);
    const verdict = await judgeAll(tenants.map((_, index) => `redis-${index}@example.com`));
    expect(verdict).toMatchObject({ faults: [], lost: 0, surplus: 0 });
  });
});

describe('ClickHouse is down', () => {
  it('mails still go, without samples; the history comes when it is back', async () => {
    const [tenant] = await own.createTenants(1);
    if (tenant === undefined) throw new RangeError('expected a tenant');
    own.startWorker();
    await own.alerts.createRule(tenant, draftRule('dark', 2));
    await own.rig.killClickHouse();
    await sendMany(tenant, 'dark', 2);
    await waitForMail('dark@example.com');
    await own.rig.startClickHouse();
    const verdict = await judgeAll(['dark@example.com']);
    expect(verdict.faults).toEqual([]);
  });
});

function isToCut({ recipient }: { recipient: string }): boolean {
  return recipient === 'cut@example.com';
}
