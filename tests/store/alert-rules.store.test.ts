import { randomBytes } from 'node:crypto';
import type { AlertRules } from '@logpond/db/alert-rules';
import type { AlertRuleDocument, RuleChange } from '@logpond/db/rule-change';
import { openWebhookSecrets, SecretSealer } from '@logpond/db/sealed-secret';
import { shardKeys } from '@logpond/db/shard-map';
import type { AlertRuleDraft } from '@logpond/schema/alert-rule';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createProject, openAlertRules, operator, startTestRedis } from './control-plane-fixture.ts';
import type { Installation, TestRedis } from './control-plane-fixture.ts';

const OLD_KEY = `old:${randomBytes(32).toString('base64')}`;
const NEW_KEY = `new:${randomBytes(32).toString('base64')}`;
const DRAFT: AlertRuleDraft = {
  name: 'Errors',
  enabled: true,
  condition: { field: 'level', operator: 'equals', value: 'error', threshold: 5, timeWindow: '5m' },
  notifications: [{ type: 'email', config: { recipients: ['ops@example.org'] } }],
};
const URL_A = 'https://a.example/hook';
const WEBHOOK: AlertRuleDraft['notifications'] = [
  {
    type: 'webhook',
    config: { url: URL_A, secret: 'the secret', headers: { Authorization: 'Bearer of A' } },
  },
];

let redis: TestRedis;
let installation: Installation;
beforeAll(async () => {
  redis = await startTestRedis();
});
afterEach(async () => redis.closeInstallations());
afterAll(async () => redis[Symbol.asyncDispose]());

function sealerOf(keys: string): SecretSealer {
  const sealer = SecretSealer.parse(keys);
  if (sealer === undefined) throw new Error('expected keys');
  return sealer;
}

async function begin(
  options?: Parameters<typeof openAlertRules>[1],
): Promise<{ rules: AlertRules; projectId: string }> {
  installation = await redis.openInstallation();
  const { projectId } = await createProject(installation.control);
  return { rules: await openAlertRules(installation, options), projectId };
}

/** What the alert worker was told, in order. */
async function readChanges(): Promise<RuleChange[]> {
  const entries = await redis.raw.xrange(shardKeys(installation.prefix, 0).log, '-', '+');
  return entries.map(([, [, text]]) => JSON.parse(text ?? '') as RuleChange);
}

/** Everything that Redis holds of this installation. */
async function dump(): Promise<string> {
  const keys = await redis.raw.keys(`${installation.prefix}:*`);
  const texts = await Promise.all(
    keys.map(async (key) => {
      switch (await redis.raw.type(key)) {
        case 'string':
          return redis.raw.get(key);
        case 'stream':
          return JSON.stringify(await redis.raw.xrange(key, '-', '+'));
        case 'hash':
          return JSON.stringify(await redis.raw.hgetall(key));
        default:
          return JSON.stringify(await redis.raw.zrange(key, 0, '-1'));
      }
    }),
  );
  return texts.join('\n');
}

describe('alert rules', () => {
  it('every change is in the stream when it is answered, with the rule as it is kept', async () => {
    const { rules, projectId } = await begin();
    const created = await rules.create(operator, projectId, DRAFT);
    expect(await readChanges()).toEqual([{ op: 'put', rule: created }]);
    const updated = await rules.update(operator, projectId, created.id, (draft) => ({
      ...draft,
      name: 'More',
    }));
    expect(await readChanges()).toEqual([
      { op: 'put', rule: created },
      { op: 'put', rule: updated },
    ]);
    expect(await rules.listOfShard(0)).toEqual([updated]);
    expect(await rules.list(projectId)).toEqual([updated]);
    expect(await rules.find(projectId, created.id)).toEqual(updated);
    await rules.remove(operator, projectId, created.id);
    const gone = { op: 'delete', ruleId: created.id, projectId, version: updated.version + 1 };
    expect((await readChanges()).at(-1)).toEqual(gone);
    expect([await rules.listOfShard(0), await rules.list(projectId)]).toEqual([[], []]);
    expect(await rules.find(projectId, created.id)).toBeUndefined();
    await expect(rules.remove(operator, projectId, created.id)).rejects.toMatchObject({ code: 'NOT_FOUND' });
  });

  it('belongs to its own project only', async () => {
    const { rules, projectId } = await begin();
    const { id } = await rules.create(operator, projectId, DRAFT);
    const other = '0190a5e0-0000-7000-8000-000000000009';
    expect(await rules.find(other, id)).toBeUndefined();
    await expect(rules.update(operator, other, id, (draft) => draft)).rejects.toMatchObject({
      code: 'NOT_FOUND',
    });
    await expect(rules.remove(operator, other, id)).rejects.toMatchObject({ code: 'NOT_FOUND' });
    await expect(rules.create(operator, other, DRAFT)).rejects.toMatchObject({ code: 'NOT_FOUND' });
    expect(await rules.list(projectId)).toHaveLength(1);
  });

  it.each<[string, boolean, (draft: AlertRuleDraft) => AlertRuleDraft]>([
    ['name', false, (draft) => ({ ...draft, name: 'other' })],
    ['recipients', false, (draft) => ({ ...draft, notifications: [] })],
    ['renotifyAfter', false, (draft) => ({ ...draft, renotifyAfter: '1h', notifyResolved: true })],
    ['nothing', false, (draft) => draft],
    ['the same window in other words', false, (draft) => condition(draft, { timeWindow: '300s' })],
    ['threshold', true, (draft) => condition(draft, { threshold: 6 })],
    ['window', true, (draft) => condition(draft, { timeWindow: '6m' })],
    ['value', true, (draft) => condition(draft, { value: 'warn' })],
    ['operator', true, (draft) => condition(draft, { operator: 'gte' })],
    ['service', true, (draft) => ({ ...draft, service: 'web' })],
    ['enabled', true, (draft) => ({ ...draft, enabled: false })],
  ])('a change of %s makes the counters begin anew: %s', async (_what, isNew, change) => {
    const { rules, projectId } = await begin();
    const { id } = await rules.create(operator, projectId, DRAFT);
    await rules.update(operator, projectId, id, (draft) => condition(draft, { threshold: 9 }));
    await rules.update(operator, projectId, id, (draft) => condition(draft, { threshold: 5 }));
    const { version, generation } = await rules.update(operator, projectId, id, change);
    expect([version, generation]).toEqual([4, isNew ? 4 : 3]);
  });

  it('writers at the same moment lose nothing of one another, or are told', async () => {
    const { rules, projectId } = await begin();
    const { id } = await rules.create(operator, projectId, condition(DRAFT, { threshold: 1 }));
    const outcomes = await Promise.allSettled(
      Array.from({ length: 12 }, async () =>
        rules.update(operator, projectId, id, (draft) =>
          condition(draft, { threshold: draft.condition.threshold + 1 }),
        ),
      ),
    );
    const done = outcomes.filter(({ status }) => status === 'fulfilled').length;
    expect(done).toBeGreaterThanOrEqual(5);
    expect((await rules.find(projectId, id))?.condition.threshold).toBe(1 + done);
    const told = outcomes.flatMap((outcome) =>
      outcome.status === 'rejected' ? [outcome.reason as unknown] : [],
    );
    for (const reason of told) expect(reason).toMatchObject({ code: 'CONFLICT' });
    expect(await readChanges()).toHaveLength(1 + done);
  });

  it('is kept and found by the poll when the alert worker could not be told, and the caller knows', async () => {
    const { rules, projectId } = await begin({ isPrepared: false });
    await expect(rules.create(operator, projectId, DRAFT)).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      publicMessage: expect.stringContaining('the change is saved') as string,
    });
    expect(await rules.listOfShard(0)).toHaveLength(1);
    expect(await readChanges()).toEqual([]);
  });
});

describe('S56: the secrets of webhooks', () => {
  it('are sealed wherever a rule is kept, and open for the rule and URL that they were given for', async () => {
    const sealer = sealerOf(OLD_KEY);
    const { rules, projectId } = await begin({ sealer });
    const rule = await rules.create(operator, projectId, { ...DRAFT, notifications: WEBHOOK });
    await rules.update(operator, projectId, rule.id, (draft) => ({ ...draft, name: 'Renamed' }));
    const kept = await dump();
    expect(kept).toContain('Renamed');
    expect(kept).not.toContain('the secret');
    expect(kept).not.toContain('Bearer of A');
    expect(openWebhook(sealer, rule)).toEqual({
      secret: 'the secret',
      headers: { Authorization: 'Bearer of A' },
    });
    const foreign = { ...rule, id: '0190a5e0-0000-7000-8000-000000000009' };
    expect(() => openWebhook(sealer, foreign)).toThrow('was sealed elsewhere');
  });

  it('*** keeps what the same URL had, and is refused for another one', async () => {
    const sealer = sealerOf(OLD_KEY);
    const { rules, projectId } = await begin({ sealer });
    const { id } = await rules.create(operator, projectId, { ...DRAFT, notifications: WEBHOOK });
    const seen: unknown[] = [];
    const [email] = DRAFT.notifications;
    const moved = await rules.update(operator, projectId, id, (draft) => {
      seen.push(draft.notifications);
      return { ...draft, notifications: [...(email === undefined ? [] : [email]), ...draft.notifications] };
    });
    expect(seen).toEqual([
      [{ type: 'webhook', config: { url: URL_A, secret: '***', headers: { Authorization: '***' } } }],
    ]);
    expect(openWebhook(sealer, moved, 1)).toEqual({
      secret: 'the secret',
      headers: { Authorization: 'Bearer of A' },
    });
    const withConfig = (config: object) => (draft: AlertRuleDraft) =>
      ({ ...draft, notifications: [{ type: 'webhook', config }] }) as AlertRuleDraft;
    const elsewhere = withConfig({ url: 'https://evil.example/', headers: { Authorization: '***' } });
    await expect(rules.update(operator, projectId, id, elsewhere)).rejects.toMatchObject({
      code: 'VALIDATION_ERROR',
      details: [{ path: 'notifications.0.config.headers.Authorization' }],
    });
    await expect(
      rules.update(operator, projectId, id, withConfig({ url: URL_A, headers: { 'X-New': '***' } })),
    ).rejects.toMatchObject({ code: 'VALIDATION_ERROR' });
    const changed = withConfig({ url: URL_A, secret: 'another', headers: { authorization: '***' } });
    expect(openWebhook(sealer, await rules.update(operator, projectId, id, changed))).toEqual({
      secret: 'another',
      headers: { authorization: 'Bearer of A' },
    });
  });

  it('without keys a rule with a secret is refused by the name of the setting, one without is not', async () => {
    const { rules, projectId } = await begin();
    for (const config of [
      { url: URL_A, secret: 's' },
      { url: URL_A, headers: { A: 'b' } },
    ]) {
      const draft: AlertRuleDraft = { ...DRAFT, notifications: [{ type: 'webhook', config }] };
      await expect(rules.create(operator, projectId, draft)).rejects.toMatchObject({
        code: 'VALIDATION_ERROR',
        publicMessage: expect.stringContaining('SECRET_KEYS') as string,
      });
    }
    const plain: AlertRuleDraft = { ...DRAFT, notifications: [{ type: 'webhook', config: { url: URL_A } }] };
    expect((await rules.create(operator, projectId, plain)).notifications).toEqual(plain.notifications);
    expect(await rules.list(projectId)).toHaveLength(1);
  });

  it('a rotation brings all under the first key, tells the alert worker, and lets counters go on', async () => {
    const { rules, projectId } = await begin({ sealer: sealerOf(OLD_KEY) });
    const draft = { ...DRAFT, notifications: WEBHOOK };
    const before = await rules.create(operator, projectId, draft);
    await rules.create(operator, projectId, DRAFT);
    const both = sealerOf(`${NEW_KEY},${OLD_KEY}`);
    const rotating = await openAlertRules(installation, { sealer: both });
    expect(await rotating.resealAll(operator, both)).toEqual({ rules: 2, resealed: 1, unreadable: [] });
    const after = await rotating.find(projectId, before.id);
    expect(after).toMatchObject({ version: 2, generation: 1, updatedAt: before.updatedAt });
    expect(openWebhook(sealerOf(NEW_KEY), after)).toMatchObject({ secret: 'the secret' });
    expect((await readChanges()).at(-1)).toEqual({ op: 'put', rule: after });
    expect(await rotating.resealAll(operator, both)).toEqual({ rules: 2, resealed: 0, unreadable: [] });
  });

  it('a rotation without the old key leaves what it cannot open, and says so', async () => {
    const { rules, projectId } = await begin({ sealer: sealerOf(OLD_KEY) });
    const kept = await rules.create(operator, projectId, { ...DRAFT, notifications: WEBHOOK });
    const fresh = sealerOf(NEW_KEY);
    const outcome = await rules.resealAll(operator, fresh);
    expect(outcome).toMatchObject({ rules: 1, resealed: 0, unreadable: [{ ruleId: kept.id }] });
    expect(outcome.unreadable[0]?.reason).toContain('"old"');
    expect(await rules.find(projectId, kept.id)).toEqual(kept);
  });
});

function condition(draft: AlertRuleDraft, rest: Partial<AlertRuleDraft['condition']>): AlertRuleDraft {
  return { ...draft, condition: { ...draft.condition, ...rest } };
}

function openWebhook(
  sealer: SecretSealer,
  rule: AlertRuleDocument | undefined,
  index = 0,
): ReturnType<typeof openWebhookSecrets> {
  const notification = rule?.notifications[index];
  if (rule === undefined || notification?.type !== 'webhook') throw new Error('expected a webhook');
  return openWebhookSecrets(sealer, rule.id, notification.config);
}
