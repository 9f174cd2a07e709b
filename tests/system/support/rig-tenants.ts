import { Accounts } from '@logpond/db/accounts';
import { ApiKeys } from '@logpond/db/api-keys';
import { connectRedis } from '@logpond/db/connect';
import type { RedisSettings } from '@logpond/db/connect';
import { ControlStore } from '@logpond/db/control-store';
import { Organizations } from '@logpond/db/organizations';
import { Projects } from '@logpond/db/projects';
import { shardOf } from '@logpond/db/shard-map';
import type { Tenant } from './rig.ts';

const TENANT_TRIES_MAX = 2_000;
const ACTOR = { kind: 'system' } as const;
const PASSWORD = 'correct horse battery staple';

/** With a session of the user who owns the project. */
export type OwnedTenant = Tenant & { session: string };

/** Makes `perShard` projects on each shard, each with a key for everything. They belong to a user of their own. */
export async function createTenants(
  settings: RedisSettings,
  perShard: number,
  options: { retentionDays?: number } = {},
): Promise<OwnedTenant[]> {
  await using redis = await connectRedis(settings);
  const control = new ControlStore(redis);
  const { user, session } = await createUser(control);
  const projects = new Projects(control);
  await using apiKeys = new ApiKeys(control);
  const name = `Fault tests ${crypto.randomUUID()}`;
  const organization = await new Organizations(control).create(ACTOR, user.id, { name });
  const shards = settings.SHARDS;
  const tenants: OwnedTenant[] = [];
  for (let tries = 0; tenants.length < perShard * shards && tries < TENANT_TRIES_MAX; tries += 1) {
    const project = await projects.create(ACTOR, {
      organizationId: organization.id,
      name: `p${tries}`,
      ...options,
    });
    const shard = shardOf(project.id, shards);
    if (tenants.filter((tenant) => tenant.shard === shard).length >= perShard) continue;
    const { apiKey } = await apiKeys.create(ACTOR, project.id, { name: 'oracle' });
    tenants.push({ projectId: project.id, apiKey, shard, session });
  }
  return tenants.toSorted((a, b) => a.shard - b.shard);
}

async function createUser(control: ControlStore): Promise<{ user: { id: string }; session: string }> {
  const accounts = new Accounts(control);
  const email = `oracle@${crypto.randomUUID()}.test`;
  const user = await accounts.createUser(ACTOR, { email, password: PASSWORD, name: 'Oracle', isAdmin: true });
  const session = await accounts.login(email, PASSWORD);
  if (session === undefined) throw new Error('expected a session');
  return { user, session: session.token };
}
