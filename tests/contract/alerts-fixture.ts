import { documentKey } from '@logpond/db/control-store';
import { shardKeys, shardOf } from '@logpond/db/shard-map';
import { Redis } from 'ioredis';
import { expectJson } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

export const SHAPE_A = {
  name: 'Errors',
  enabled: true,
  condition: { field: 'level', operator: 'equals', value: 'error', threshold: 10, timeWindow: '90s' },
  notifications: [{ type: 'email', config: { recipients: ['ops@example.org'] } }],
};

export const SHAPE_B = {
  name: 'Flat',
  enabled: false,
  level: ['error', 'critical'],
  threshold: 3,
  timeWindow: 15,
  emailRecipients: ['a@example.org'],
};

/** A rule as the API returns it. */
export type ShownRule = Record<string, unknown> & {
  id: string;
  condition: Record<string, unknown>;
  notifications: { type: string; config: Record<string, unknown> }[];
  updatedAt: string;
};

export function pathOf({ projectId }: TestTenant, rest = ''): string {
  return `/projects/${projectId}/alerts${rest}`;
}

/** Creates a rule and returns it as it was answered. */
export async function createRule(api: ContractApi, tenant: TestTenant, json: object): Promise<ShownRule> {
  const answer = await api.call('POST', pathOf(tenant), { session: tenant.sessionToken, json });
  return (await expectJson<{ alertRule: ShownRule }>(answer, 201)).alertRule;
}

/** Makes one tenant's user a member of another's organization; there is no route for that yet. */
export async function join(
  api: ContractApi,
  { userId }: TestTenant,
  { organizationId }: TestTenant,
  role: 'viewer' | 'member',
): Promise<void> {
  await using raw = openRaw(api);
  const member = { version: 1, organizationId, userId, role, createdAt: new Date().toISOString() };
  const key = documentKey('member', `${organizationId}/${userId}`);
  await raw.client.set(`lp:{cp}:${key}`, JSON.stringify(member));
}

/** Writes what the alert worker keeps of a rule. */
export async function setRuleState(
  api: ContractApi,
  { projectId }: TestTenant,
  ruleId: string,
  fields: Record<string, string>,
): Promise<void> {
  await using raw = openRaw(api);
  await raw.client.hset(
    shardKeys('lp', shardOf(projectId, Number(api.env['SHARDS']))).window(ruleId),
    fields,
  );
}

/** The changes of rules that the streams hold, as text. */
export async function readRuleChanges(api: ContractApi): Promise<string[]> {
  await using raw = openRaw(api);
  const shards = Array.from({ length: Number(api.env['SHARDS']) }, (_, shard) => shardKeys('lp', shard).log);
  const streams = await Promise.all(shards.map(async (log) => raw.client.xrange(log, '-', '+')));
  return streams
    .flat()
    .flatMap(([, [field, text]]) => (field === 'rules' && text !== undefined ? [text] : []));
}

function openRaw(api: ContractApi): AsyncDisposable & { client: Redis } {
  const client = new Redis(api.env['REDIS_URL'] ?? '');
  return {
    client,
    async [Symbol.asyncDispose]() {
      await client.quit();
    },
  };
}
