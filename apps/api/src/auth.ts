import { ApiError } from '@logpond/schema/api-error';
import type { Accounts } from '@logpond/db/accounts';
import type { ApiKeys } from '@logpond/db/api-keys';
import type { ResolvedKey } from '@logpond/db/api-key-cache';
import type { Organizations } from '@logpond/db/organizations';
import type { Projects } from '@logpond/db/projects';
import { ROLES } from '@logpond/schema/account';
import type { Role, Scope } from '@logpond/schema/account';
import type { Credentials } from './credentials.ts';
import type { Access, Caller, ProjectCaller, SessionCaller, Tenant } from './route.ts';

export type AuthStores = {
  accounts: Accounts;
  organizations: Organizations;
  projects: Projects;
  apiKeys: ApiKeys;
  now: () => number;
};

/** The value that names the tenant of a request, or undefined when the request has none. */
type TenantValue = (tenant: Tenant) => string | undefined;

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Whether a text can be the id of anything; only such a text may become part of a store's key. */
export function isUuid(text: string): boolean {
  return UUID.test(text);
}

/**
 * Settles who calls, by the policy of the route: credentials first (401), then the right (403, 404).
 *
 * A tenant named in the body is settled later, by `bindTenant`, once there is a body.
 *
 * @throws {ApiError} MISSING_CREDENTIALS, INVALID_API_KEY, INVALID_TOKEN, INSUFFICIENT_SCOPE, FORBIDDEN,
 *   NOT_FOUND, VALIDATION_ERROR (a session without projectId). @throws {StoreError} unavailable.
 */
export async function authorize(
  access: Access,
  credentials: Credentials,
  valueOf: TenantValue,
  stores: AuthStores,
): Promise<Caller> {
  switch (access.kind) {
    case 'public':
      return { kind: 'public' };
    case 'apiKey':
      return authorizeKey(requireKey(credentials), access.scope, () => undefined, stores);
    case 'session': {
      const caller = await authorizeSession(credentials, stores);
      if (access.tenant === undefined || access.tenant.in === 'body') return caller;
      return bindTenant(caller, access.tenant, valueOf(access.tenant), stores);
    }
    case 'apiKeyOrSession': {
      // Read only once the credentials are known to be good: a bad parameter is a matter for their owner.
      const readAsked = (): string | undefined => valueOf(access.tenant);
      if (credentials.apiKey !== undefined)
        return authorizeKey(credentials.apiKey, access.scope, readAsked, stores);
      if (credentials.session === undefined)
        throw missing('an API key (header X-API-Key) or a session token', credentials);
      return authorizeProjectSession(credentials, access.tenant, readAsked, stores);
    }
  }
}

/** The caller within the organization or project that `id` names, or NOT_FOUND for whoever is not in it. */
export async function bindTenant(
  caller: SessionCaller,
  tenant: Tenant,
  id: string | undefined,
  stores: AuthStores,
): Promise<SessionCaller> {
  if (id === undefined) {
    if (tenant.isOptional === true) return caller;
    throw new ApiError('VALIDATION_ERROR', {
      public: `expected the parameter "${tenant.name}" with the id of a ${tenant.kind}`,
    });
  }
  if (!isUuid(id)) throw notFound(tenant.kind);
  const project = tenant.kind === 'project' ? await stores.projects.find(id.toLowerCase()) : undefined;
  const organizationId = tenant.kind === 'project' ? project?.organizationId : id.toLowerCase();
  if (organizationId === undefined) throw notFound(tenant.kind);
  const [organization, role] = await Promise.all([
    stores.organizations.find(organizationId),
    stores.organizations.roleOf(organizationId, caller.user.id),
  ]);
  if (organization === undefined || role === undefined) throw notFound(tenant.kind);
  if (!hasRole(role, tenant.role)) {
    throw new ApiError('FORBIDDEN', {
      public: `expected the role ${tenant.role} or higher, you are ${role}`,
    });
  }
  return { ...caller, organization, role, ...(project === undefined ? {} : { project }) };
}

/** Whether `role` includes all that `least` may do. */
export function hasRole(role: Role, least: Role): boolean {
  return ROLES.indexOf(role) >= ROLES.indexOf(least);
}

function notFound(kind: string): ApiError {
  return new ApiError('NOT_FOUND', { public: `no such ${kind}` });
}

function missing(expected: string, credentials: Credentials): ApiError {
  const got = credentials.hasForeignScheme === true ? 'an Authorization header that is not "Bearer"' : 'none';
  return new ApiError('MISSING_CREDENTIALS', { public: `expected ${expected}, got ${got}` });
}

function requireKey(credentials: Credentials): string {
  if (credentials.apiKey !== undefined) return credentials.apiKey;
  if (credentials.session !== undefined) {
    throw new ApiError('INVALID_API_KEY', {
      public: 'this route needs an API key (header "X-API-Key: lp_…"), not a session token',
    });
  }
  throw missing('an API key in the header X-API-Key', credentials);
}

async function authorizeKey(
  secret: string,
  scope: Scope,
  readAsked: () => string | undefined,
  stores: AuthStores,
): Promise<ProjectCaller> {
  const key = await resolveKey(secret, stores);
  if (key === undefined)
    throw new ApiError('INVALID_API_KEY', { public: 'the API key is unknown, expired or revoked' });
  if (!key.scopes.includes(scope)) {
    throw new ApiError('INSUFFICIENT_SCOPE', {
      public: `expected an API key with the scope ${scope}, this one has ${key.scopes.join(', ') || 'none'}`,
    });
  }
  // A key answers for its own project only; another one's id is as good as a missing one's.
  const askedProjectId = readAsked();
  if (askedProjectId !== undefined && askedProjectId.toLowerCase() !== key.projectId)
    throw notFound('project');
  return {
    kind: 'project',
    by: 'apiKey',
    projectId: key.projectId,
    retentionDays: key.retentionDays,
    keyId: key.keyId,
    isStillAllowed: async () => (await resolveKey(secret, stores))?.scopes.includes(scope) === true,
  };
}

/** The key's project from memory where it is known, so that the hot path does not wait for Redis. */
async function resolveKey(secret: string, stores: AuthStores): Promise<ResolvedKey | undefined> {
  const cached = stores.apiKeys.resolveCached(secret);
  const key = cached === undefined ? await stores.apiKeys.resolve(secret) : (cached ?? undefined);
  if (key === undefined || (key.expiresAt !== null && Date.parse(key.expiresAt) <= stores.now()))
    return undefined;
  return key;
}

async function authorizeSession(credentials: Credentials, stores: AuthStores): Promise<SessionCaller> {
  if (credentials.session === undefined) {
    if (credentials.apiKey === undefined)
      throw missing('a session token in "Authorization: Bearer …" (POST /auth/login)', credentials);
    throw new ApiError('INVALID_TOKEN', {
      public: 'this route needs a session token (POST /auth/login), not an API key',
    });
  }
  const session = await stores.accounts.findSession(credentials.session);
  if (session === undefined)
    throw new ApiError('INVALID_TOKEN', { public: 'the session is unknown or has ended; log in again' });
  return { kind: 'session', user: session.user, token: credentials.session };
}

async function authorizeProjectSession(
  credentials: Credentials,
  tenant: Tenant,
  readAsked: () => string | undefined,
  stores: AuthStores,
): Promise<ProjectCaller> {
  const bind = async (): Promise<SessionCaller> =>
    bindTenant(await authorizeSession(credentials, stores), tenant, readAsked(), stores);
  const caller = await bind();
  if (caller.project === undefined) throw notFound('project');
  return {
    kind: 'project',
    by: 'session',
    projectId: caller.project.id,
    retentionDays: caller.project.retentionDays,
    userId: caller.user.id,
    isStillAllowed: async () => {
      try {
        await bind();
        return true;
      } catch (error) {
        if (error instanceof ApiError) return false;
        throw error;
      }
    },
  };
}
