import { Accounts } from '@logpond/db/accounts';
import { ApiKeys } from '@logpond/db/api-keys';
import { connectRedis } from '@logpond/db/connect';
import type { RedisSettings } from '@logpond/db/connect';
import { ControlStore } from '@logpond/db/control-store';
import type { Actor } from '@logpond/db/control-store';
import { Organizations } from '@logpond/db/organizations';
import { Projects } from '@logpond/db/projects';
import type { Credentials, CredentialsFile } from './installation.ts';

const LAUNCHER: Actor = { kind: 'system' };

export type Installation =
  | { kind: 'new' | 'known'; credentials: Credentials }
  /** The stores hold accounts that this data directory knows nothing of. */
  | { kind: 'foreign' };

/**
 * Makes the installation usable before the API listens: on the first start an administrator, an organization,
 * a project and an API key, written to the credentials file. Killed at any point, the next start goes on where
 * it ended; later starts change nothing but the address.
 */
export async function prepareInstallation(
  settings: RedisSettings,
  file: CredentialsFile,
  baseUrl: string,
): Promise<Installation> {
  await using redis = await connectRedis(settings);
  const control = new ControlStore(redis);
  const accounts = new Accounts(control);
  const hasUsers = await accounts.hasUsers();
  const known = file.read();
  if (known && hasUsers) {
    if (known.baseUrl !== baseUrl) file.write({ ...known, baseUrl });
    return { kind: 'known', credentials: { ...known, baseUrl } };
  }
  if (known) file.setAside();
  const { email, password } = file.readDraft();
  const userId = hasUsers
    ? await findDraftUser(accounts, email, password)
    : (await accounts.createUser(LAUNCHER, { email, password, name: 'Administrator', isAdmin: true })).id;
  if (userId === undefined) return { kind: 'foreign' };
  const credentials = { baseUrl, email, password, ...(await createProject(control, userId)) };
  file.write(credentials);
  return { kind: 'new', credentials };
}

/** The account that an earlier, killed first start has made, if it was one. */
async function findDraftUser(
  accounts: Accounts,
  email: string,
  password: string,
): Promise<string | undefined> {
  const session = await accounts.login(email, password);
  if (session) await accounts.logout(session.token);
  return session?.user.id;
}

async function createProject(
  control: ControlStore,
  userId: string,
): Promise<Pick<Credentials, 'organizationId' | 'projectId' | 'apiKey'>> {
  const organizations = new Organizations(control);
  const projects = new Projects(control);
  await using apiKeys = new ApiKeys(control);
  const organization =
    (await organizations.listForUser(userId))[0] ??
    (await organizations.create(LAUNCHER, userId, { name: 'My organization' }));
  const project =
    (await projects.listByOrganization(organization.id))[0] ??
    (await projects.create(LAUNCHER, { organizationId: organization.id, name: 'My project' }));
  const { apiKey } = await apiKeys.create(LAUNCHER, project.id, { name: 'First key' });
  return { organizationId: organization.id, projectId: project.id, apiKey };
}
