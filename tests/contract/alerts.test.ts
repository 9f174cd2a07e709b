import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRule, join, pathOf, setRuleState, SHAPE_A, SHAPE_B } from './alerts-fixture.ts';
import type { ShownRule } from './alerts-fixture.ts';
import { expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

const NOBODY = '0199a1b2-0000-7000-8000-000000000001';

let api: ContractApi;
let ann: TestTenant;
let bob: TestTenant;
let vic: TestTenant;
let mel: TestTenant;
beforeAll(async () => {
  api = await openContractApi();
  [ann, bob, vic, mel] = [
    await api.createTenant('ann'),
    await api.createTenant('bob'),
    await api.createTenant('vic'),
    await api.createTenant('mel'),
  ];
  await join(api, vic, ann, 'viewer');
  await join(api, mel, ann, 'member');
});
afterAll(async () => api[Symbol.asyncDispose]());

async function ask(method: string, rest: string, json?: object, who = ann): Promise<Response> {
  return api.call(method, pathOf(ann, rest), {
    session: who.sessionToken,
    ...(json === undefined ? {} : { json }),
  });
}

async function change(method: 'PATCH' | 'PUT', id: string, json: object): Promise<ShownRule> {
  const answer = await expectJson<{ alertRule: ShownRule }>(await ask(method, `/${id}`, json));
  return answer.alertRule;
}

describe('contract §3: one alert rule', () => {
  it.each([SHAPE_A, SHAPE_B])('comes back the same from POST, GET, the list and PUT: $name', async (json) => {
    const created = await createRule(api, ann, json);
    expect(created).toMatchObject(json);
    const path = `/${created.id}`;
    expect(await expectJson(await ask('GET', path))).toEqual({ alertRule: created });
    const { alertRules } = await expectJson<{ alertRules: ShownRule[] }>(await ask('GET', ''));
    expect(alertRules.filter(({ id }) => id === created.id)).toEqual([created]);
    const replaced = await change('PUT', created.id, json);
    expect(replaced).toEqual({ ...created, updatedAt: replaced.updatedAt });
    const other = json === SHAPE_A ? SHAPE_B : SHAPE_A;
    const exchanged = await change('PUT', created.id, other);
    expect(exchanged).toMatchObject(other);
    expect([exchanged.id, exchanged['createdAt']]).toEqual([created.id, created['createdAt']]);
  });

  it('PATCH changes what it names, in either form, and leaves the rest', async () => {
    const webhook = { type: 'webhook', config: { url: 'https://hooks.example.org/x' } };
    const rule = await createRule(api, ann, {
      ...SHAPE_A,
      service: 'web',
      renotifyAfter: '1h',
      notifications: [...SHAPE_A.notifications, webhook],
    });
    const steps: [object, object][] = [
      [{ name: ' Renamed ' }, { name: 'Renamed' }],
      [
        { condition: { threshold: 77 } },
        { condition: { ...SHAPE_A.condition, threshold: 77 }, threshold: 77 },
      ],
      [
        { threshold: 5, timeWindow: 2 },
        { condition: { ...SHAPE_A.condition, threshold: 5, timeWindow: '2m' } },
      ],
      [
        { level: ['warn'] },
        { condition: { field: 'level', operator: 'equals', value: 'warn', threshold: 5 } },
      ],
      [
        { level: ['WARN', 'error'] },
        { level: ['warn', 'error'], condition: { operator: 'in', timeWindow: '2m' } },
      ],
      [
        { condition: { field: 'metadata.code', operator: 'gte', value: 500 } },
        { level: [], threshold: 5, condition: { field: 'metadata.code', operator: 'gte', value: 500 } },
      ],
      [{ condition: { operator: 'exists' } }, { condition: { field: 'metadata.code', operator: 'exists' } }],
      [
        { service: null, renotifyAfter: null },
        { service: null, renotifyAfter: null },
      ],
      [
        { emailRecipients: ['b@example.org'] },
        { emailRecipients: ['b@example.org'], notifications: [{}, webhook] },
      ],
      [{ emailRecipients: [] }, { emailRecipients: [], notifications: [webhook] }],
      [{ notifications: [] }, { notifications: [], name: 'Renamed' }],
      [
        { enabled: false, notifyResolved: true },
        { enabled: false, notifyResolved: true },
      ],
    ];
    let before = rule;
    for (const [json, expected] of steps) {
      const after = await change('PATCH', rule.id, json);
      expect(after).toMatchObject(expected);
      const untouched = Object.keys(before).filter((name) => !(name in expected) && !(name in json));
      const derived = ['updatedAt', 'condition', 'level', 'threshold', 'timeWindow', 'emailRecipients'];
      for (const name of untouched.filter((one) => !derived.includes(one) && one !== 'notifications')) {
        expect([name, after[name]]).toEqual([name, before[name]]);
      }
      before = after;
    }
    expect(await expectJson(await ask('GET', `/${rule.id}`))).toEqual({ alertRule: before });
  });

  it('is deleted once, with 204, and is 404 then', async () => {
    const { id } = await createRule(api, ann, SHAPE_A);
    const gone = await ask('DELETE', `/${id}`);
    expect([gone.status, await gone.text()]).toEqual([204, '']);
    for (const method of ['GET', 'DELETE']) {
      await expectError(await ask(method, `/${id}`), 404, 'NOT_FOUND');
    }
    await expectError(await ask('PATCH', `/${id}`, { name: 'x' }), 404, 'NOT_FOUND');
    await expectError(await ask('PUT', `/${id}`, SHAPE_A), 404, 'NOT_FOUND');
    await expectError(await ask('POST', `/${id}/test`), 404, 'NOT_FOUND');
  });

  it('shows what the alert worker keeps of it', async () => {
    const { id } = await createRule(api, ann, SHAPE_A);
    const atMs = Date.parse('2026-11-21T12:00:00Z');
    await setRuleState(api, ann, id, { state: 'firing', lastTriggeredAt: String(atMs) });
    const shown = { state: 'firing', lastTriggeredAt: new Date(atMs).toISOString() };
    expect(await expectJson(await ask('GET', `/${id}`))).toMatchObject({ alertRule: shown });
    const { alertRules } = await expectJson<{ alertRules: ShownRule[] }>(await ask('GET', ''));
    expect(alertRules.find((rule) => rule.id === id)).toMatchObject(shown);
    await setRuleState(api, ann, id, { state: 'ok' });
    expect(await change('PATCH', id, { name: 'calm' })).toMatchObject({ ...shown, state: 'ok' });
  });

  it('a viewer reads, a member writes, and for everybody else there is nothing', async () => {
    const { id } = await createRule(api, ann, SHAPE_A);
    const reads: [string, string, object?][] = [
      ['GET', ''],
      ['GET', `/${id}`],
      ['GET', '/history'],
      ['POST', '/preview', { rule: SHAPE_A }],
    ];
    const writes: [string, string, object?][] = [
      ['POST', '', SHAPE_A],
      ['PATCH', `/${id}`, { name: 'x' }],
      ['PUT', `/${id}`, SHAPE_A],
      ['POST', `/${id}/test`],
      ['DELETE', `/${id}`],
    ];
    for (const [method, rest, json] of reads) {
      expect([method, rest, (await ask(method, rest, json, vic)).status]).toEqual([method, rest, 200]);
    }
    for (const [method, rest, json] of writes) {
      const refused = await expectError(await ask(method, rest, json, vic), 403, 'FORBIDDEN');
      expect(refused.error).toBe('expected the role member or higher, you are viewer');
    }
    for (const [method, rest, json] of [...reads, ...writes]) {
      await expectError(await ask(method, rest, json, bob), 404, 'NOT_FOUND');
    }
    // With the rule's id under the caller's own project.
    const own = `/projects/${bob.projectId}/alerts/${id}`;
    for (const method of ['GET', 'DELETE']) {
      await expectError(await api.call(method, own, { session: bob.sessionToken }), 404, 'NOT_FOUND');
    }
    expect((await ask('PATCH', `/${id}`, { name: 'by mel' }, mel)).status).toBe(200);
    expect((await ask('DELETE', `/${id}`, undefined, mel)).status).toBe(204);
  });

  it('the words history and preview are never taken for the id of a rule', async () => {
    for (const [method, rest] of [
      ['DELETE', '/history'],
      ['PATCH', '/history'],
      ['GET', '/preview'],
    ] as const) {
      const refused = await ask(method, rest);
      expect(refused.headers.get('allow')).toMatch(rest === '/history' ? /^GET, / : /^POST, /);
      await expectError(refused, 405, 'METHOD_NOT_ALLOWED');
    }
    await expectError(await ask('GET', `/${NOBODY}`), 404, 'NOT_FOUND');
    await expectError(await ask('GET', '/nonsense'), 404, 'NOT_FOUND');
  });
});
