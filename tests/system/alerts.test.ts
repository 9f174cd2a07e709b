import { createHmac } from 'node:crypto';
import { closeSync, openSync, writeSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import type { RuleDraft } from './support/alert-api.ts';
import { judgeAlerts } from './support/alert-judge.ts';
import { AlertRig } from './support/alert-rig.ts';
import { compileShim } from './support/native-shim.ts';
import type { OwnedTenant } from './support/rig-tenants.ts';

const HOUR_MS = 3_600_000;
const SECRET = 'the secret of this webhook';
/** What comes within a minute of a mail is told together in the next one. */
const GROUPED_MS_MAX = 90_000;

let own: AlertRig;
/** Begun first, looked at last: its second mail takes a minute. */
let slow: { tenant: OwnedTenant; ruleId: string };

beforeAll(async () => {
  own = await AlertRig.open({ shards: 2 });
  slow = await beginSlow();
});
afterEach(async () => own.killWorkers());
afterAll(async () => own[Symbol.asyncDispose]());

function draftRule(service: string, threshold: number, rest: Partial<RuleDraft> = {}): RuleDraft {
  return {
    name: `Errors of ${service}`,
    enabled: true,
    condition: { field: 'service', operator: 'equals', value: service, threshold, timeWindow: '10m' },
    notifications: [{ type: 'email', config: { recipients: [`${service}@example.com`] } }],
    ...rest,
  };
}

async function createTenant(): Promise<OwnedTenant> {
  const [tenant] = await own.createTenants(1);
  if (tenant === undefined) throw new RangeError('expected a tenant');
  return tenant;
}

async function sendMany(tenant: OwnedTenant, service: string, count: number): Promise<void> {
  const entry = { service, level: 'error', message: 'it broke' };
  await own.alerts.send(
    tenant,
    Array.from({ length: count }, () => entry),
  );
}

async function waitForMail(recipient: string): Promise<void> {
  await waitFor(
    `a mail to ${recipient}`,
    () => own.smtp.mails.some((mail) => mail.recipient === recipient),
    30_000,
  );
}

/** @returns how many crossings there were, all of them as they should be. */
async function countJudged(tenants: readonly OwnedTenant[]): Promise<number> {
  await own.waitForRest();
  const verdict = await judgeAlerts({ rig: own.rig, api: own.alerts, tenants });
  expect(verdict).toMatchObject({ faults: [], lost: 0, surplus: 0 });
  return verdict.crossings;
}

/** A rule that fires, is over after some seconds, and fires again. */
async function beginSlow(): Promise<{ tenant: OwnedTenant; ruleId: string }> {
  own.startWorker();
  const tenant = await createTenant();
  const condition = { field: 'service', operator: 'equals', value: 'slow', threshold: 3, timeWindow: '2s' };
  const webhook = {
    type: 'webhook',
    config: {
      url: new URL('/hooks/slow', own.webhooks.url).href,
      secret: SECRET,
      headers: { 'X-Token': 'of the rule' },
    },
  };
  const email = { type: 'email', config: { recipients: ['slow@example.com'] } };
  const ruleId = await own.alerts.createRule(tenant, {
    ...draftRule('slow', 3),
    condition,
    notifications: [email, webhook],
    notifyResolved: true,
  });
  await sendMany(tenant, 'slow', 4);
  const isOver = (): boolean => listSlowCalls().some(({ body }) => body.includes('alert.resolved'));
  await waitFor('the first end to be told', isOver, 30_000);
  await sendMany(tenant, 'slow', 4);
  return { tenant, ruleId };
}

function listSlowCalls(): typeof own.webhooks.received {
  return own.webhooks.received.filter(({ path }) => path === '/hooks/slow');
}

describe('who is counted', () => {
  it("entries of a rule's own project, while it is enabled and there: never others", async () => {
    own.startWorker();
    const [mine, other] = [await createTenant(), await createTenant()];
    const service = 'counted';
    const alive = await own.alerts.createRule(mine, draftRule(service, 10));
    const disabled = await own.alerts.createRule(mine, draftRule(service, 10, { enabled: false }));
    const deleted = await own.alerts.createRule(mine, draftRule(service, 10));
    const ofOther = await own.alerts.createRule(other, draftRule(service, 10));
    await own.alerts.deleteRule(mine, deleted);
    await sendMany(mine, service, 12);
    await own.alerts.changeRule(mine, disabled, { enabled: true });
    await sendMany(mine, service, 5);
    await own.alerts.changeRule(mine, alive, { enabled: false });
    await sendMany(mine, service, 3);
    await sendMany(other, 'another', 20);
    expect(await countJudged([mine, other])).toBe(1);
    expect(await own.readCounted(mine, disabled)).toBe(8);
    expect(await own.readCounted(other, ofOther)).toBe(0);
    const states = new Map((await own.alerts.listRules(mine)).map(({ id, state }) => [id, state]));
    expect(states).toEqual(
      new Map([
        [alive, 'ok'],
        [disabled, 'ok'],
      ]),
    );
  });

  it('a changed threshold begins anew; a changed name and other recipients go on', async () => {
    own.startWorker();
    const tenant = await createTenant();
    const rule = await own.alerts.createRule(tenant, draftRule('changed', 8));
    await sendMany(tenant, 'changed', 5);
    await own.alerts.changeRule(tenant, rule, {
      name: 'Another name',
      notifications: [{ type: 'email', config: { recipients: ['new@example.com'] } }],
    });
    await sendMany(tenant, 'changed', 3);
    await waitForMail('new@example.com');
    await own.alerts.changeRule(tenant, rule, { condition: { ...draftRule('changed', 4).condition } });
    await sendMany(tenant, 'changed', 3);
    await own.waitForRest();
    expect(await own.readCounted(tenant, rule)).toBe(3);
    await sendMany(tenant, 'changed', 1);
    expect(await countJudged([tenant])).toBe(2);
    expect(own.smtp.mails.filter(({ recipient }) => recipient === 'changed@example.com')).toEqual([]);
  });
});

describe('a worker that comes back', () => {
  it('goes on with a half-full window: what came before, meanwhile and after adds up', async () => {
    const tenant = await createTenant();
    const first = own.startWorker();
    const rule = await own.alerts.createRule(tenant, draftRule('halves', 10));
    await sendMany(tenant, 'halves', 4);
    await own.waitUntilCounted();
    await first.kill();
    await own.killWorkers();
    await sendMany(tenant, 'halves', 3);
    own.startWorker();
    await own.waitUntilCounted();
    expect(await own.readCounted(tenant, rule)).toBe(7);
    expect(await countJudged([tenant])).toBe(0);
    await sendMany(tenant, 'halves', 3);
    await waitForMail('halves@example.com');
    expect(await countJudged([tenant])).toBe(1);
  });
});

describe('a rule that fires twice within a minute', () => {
  it('by webhook: each time at once, signed, with the headers of the rule', async () => {
    own.startWorker();
    const { tenant, ruleId } = slow;
    const calls = await waitFor('the second end to be told', () => {
      const found = listSlowCalls();
      return found.length >= 4 && found;
    });
    const told = calls.map(({ body }) => JSON.parse(body) as Record<string, unknown>);
    const types = told.map(({ type }) => type);
    expect(types).toEqual(['alert.firing', 'alert.resolved', 'alert.firing', 'alert.resolved']);
    for (const { headers, body } of calls) {
      const [, at, signature] =
        /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(headers['x-logpond-signature'])) ?? [];
      expect(signature).toBe(createHmac('sha256', SECRET).update(`${at}.${body}`).digest('hex'));
      expect(Math.abs(Number(at) - Date.now() / 1_000)).toBeLessThan(120);
      expect(headers['x-token']).toBe('of the rule');
    }
    const deliveries = calls.map(({ headers }) => headers['x-logpond-delivery']);
    expect(new Set(deliveries).size).toBe(calls.length);
    expect(told[0]).toMatchObject({
      threshold: 3,
      window: '2s',
      rule: { id: ruleId },
      project: { id: tenant.projectId },
    });
  });

  it('by mail: at once, and all that came within the minute in one more', async () => {
    own.startWorker();
    const listMine = (): typeof own.smtp.mails =>
      own.smtp.mails.filter(({ recipient }) => recipient === 'slow@example.com');
    await waitFor('the second mail', () => listMine().length >= 2, GROUPED_MS_MAX);
    const [first, second] = listMine();
    expect(first?.subject).toMatch(/^\[FIRING\]/);
    expect(second?.subject).toMatch(/^\[RESOLVED\]/);
    expect((second?.arrivedAtMs ?? 0) - (first?.arrivedAtMs ?? 0)).toBeGreaterThan(50_000);
    expect(second?.firings).toHaveLength(2);
    expect(await countJudged([slow.tenant])).toBe(2);
  });
});

// Last: mails that wait for their minute go by that clock too.
describe("the clock of the worker's machine", () => {
  it('an hour ahead, then an hour behind, then right: changes no firing', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'logpond-clock-'));
    const clock = join(directory, 'shift');
    await writeFile(clock, Buffer.alloc(8));
    const setClock = (shiftMs: number): void => {
      const bytes = Buffer.alloc(8);
      bytes.writeBigInt64LE(BigInt(shiftMs) * 1_000_000n);
      // In place: the shim has this very file in its memory.
      const file = openSync(clock, 'r+');
      writeSync(file, bytes, 0, 8, 0);
      closeSync(file);
    };
    setClock(HOUR_MS);
    own.startWorker({ LD_PRELOAD: await compileShim('clock-shim'), CLOCK_SHIFT: clock });
    const tenant = await createTenant();
    const short = draftRule('clock', 4, { notifications: [] });
    await own.alerts.createRule(tenant, { ...short, condition: { ...short.condition, timeWindow: '2s' } });
    await own.alerts.createRule(tenant, draftRule('clock', 30));
    for (const shiftMs of [HOUR_MS, -HOUR_MS, 0]) {
      setClock(shiftMs);
      for (let beat = 0; beat < 8; beat += 1) {
        await sendMany(tenant, 'clock', 2);
        await delay(400);
      }
    }
    await waitForMail('clock@example.com');
    // Where the machine stood still for seconds, the short rule fired more than once.
    expect(await countJudged([tenant])).toBeGreaterThanOrEqual(2);
    await own.killWorkers();
    await rm(directory, { recursive: true });
  });
});
