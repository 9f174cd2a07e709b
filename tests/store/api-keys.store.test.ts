import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createApiKeySecret, hashApiKeySecret } from '@logpond/db/api-key-secret';
import { ApiKeys } from '@logpond/db/api-keys';
import { countFulfilled, createProject, operator, startTestRedis } from './control-plane-fixture.ts';
import type { TestRedis } from './control-plane-fixture.ts';
import { documentKey, indexKey } from '@logpond/db/control-store';
import { Projects } from '@logpond/db/projects';

let redis: TestRedis;

beforeAll(async () => {
  redis = await startTestRedis();
});

afterEach(async () => redis.closeInstallations());

afterAll(async () => redis[Symbol.asyncDispose]());

/** A clock that stands still until it is moved. */
function createClock(): { now: () => number; forward: (ms: number) => void } {
  let nowMs = Date.now();
  return {
    now: () => nowMs,
    forward: (ms) => {
      nowMs += ms;
    },
  };
}

describe('API keys', () => {
  it('resolve to their project, scopes and retention; the secret itself is kept nowhere', async () => {
    const { prefix, control } = await redis.openInstallation();
    const { projectId } = await createProject(control);
    await using keys = new ApiKeys(control);
    const { apiKey, id, ...rest } = await keys.create(operator, projectId, { name: 'web' });
    expect(rest).toMatchObject({
      name: 'web',
      scopes: ['ingest', 'query', 'stream'],
      expiresAt: null,
      lastUsedAt: null,
    });
    expect(apiKey.startsWith(rest.prefix)).toBe(true);
    expect(keys.resolveCached(apiKey)).toBeUndefined();
    const resolved = { keyId: id, projectId, scopes: rest.scopes, expiresAt: null, retentionDays: 30 };
    expect(await keys.resolve(apiKey)).toEqual(resolved);
    expect(keys.resolveCached(apiKey)).toEqual(resolved);
    for (const key of await redis.raw.keys(`${prefix}:*`)) {
      const type = await redis.raw.type(key);
      const content =
        type === 'string'
          ? await redis.raw.get(key)
          : type === 'stream'
            ? await redis.raw.xrange(key, '-', '+')
            : '';
      expect(key + JSON.stringify(content)).not.toContain(apiKey);
    }
  });

  it('with a wrong checksum are refused without asking, unknown ones after asking once a second', async () => {
    const { control } = await redis.openInstallation();
    const clock = createClock();
    await using keys = new ApiKeys(control, clock);
    expect(keys.resolveCached(`lp_${'0'.repeat(46)}`)).toBeNull();
    const unknown = createApiKeySecret();
    expect(keys.resolveCached(unknown)).toBeUndefined();
    expect(await keys.resolve(unknown)).toBeUndefined();
    expect(keys.resolveCached(unknown)).toBeNull();
    clock.forward(1_001);
    expect(keys.resolveCached(unknown)).toBeUndefined();
  });

  it('stop at their expiry, and cannot be made expired', async () => {
    const { control } = await redis.openInstallation();
    const clock = createClock();
    await using keys = new ApiKeys(control, clock);
    const { projectId } = await createProject(control);
    const expiresAt = new Date(clock.now() + 2_000).toISOString();
    const { apiKey } = await keys.create(operator, projectId, {
      name: 'brief',
      scopes: ['query'],
      expiresAt,
    });
    expect(await keys.resolve(apiKey)).toMatchObject({ scopes: ['query'], expiresAt });
    clock.forward(2_000);
    expect(keys.resolveCached(apiKey)).toBeNull();
    await expect(keys.create(operator, projectId, { name: 'x', expiresAt })).rejects.toMatchObject({
      code: 'VALIDATION_ERROR',
    });
  });

  it('S59: are at most 50 a project, also in a race, and a revoked one makes room', async () => {
    const { control } = await redis.openInstallation();
    const { projectId } = await createProject(control);
    await using keys = new ApiKeys(control);
    const outcomes = await Promise.allSettled(
      Array.from({ length: 60 }, () => keys.create(operator, projectId, { name: 'k' })),
    );
    expect(countFulfilled(outcomes)).toBe(50);
    const [first] = await keys.list(projectId);
    expect(await keys.revoke(operator, projectId, first?.id ?? '')).toBe(true);
    expect(await keys.list(projectId)).toHaveLength(49);
    await keys.create(operator, projectId, { name: 'k' });
    await expect(keys.create(operator, 'none', { name: 'k' })).rejects.toMatchObject({ code: 'NOT_FOUND' });
  });

  it('tell when they were last used, to the minute, and nothing is left of a revoked one', async () => {
    const { prefix, control } = await redis.openInstallation();
    const clock = createClock();
    const { projectId } = await createProject(control);
    await using keys = new ApiKeys(control, clock);
    const { apiKey, id } = await keys.create(operator, projectId, { name: 'k' });
    const usedAt = new Date(clock.now()).toISOString();
    const lastUsedAt = async (): Promise<unknown> => (await keys.list(projectId))[0]?.lastUsedAt;
    await keys.resolve(apiKey);
    await expect.poll(lastUsedAt).toBe(usedAt);
    clock.forward(59_000);
    await keys.resolve(apiKey);
    await keys[Symbol.asyncDispose]();
    expect(await lastUsedAt()).toBe(usedAt);
    clock.forward(1_000);
    await keys.resolve(apiKey);
    await expect.poll(lastUsedAt).toBe(new Date(clock.now()).toISOString());
    await keys.revoke(operator, projectId, id);
    expect(await redis.raw.keys(`${prefix}:{cp}:api-key*`)).toEqual([]);
  });
});

describe('revocation', () => {
  it('S18: reaches every process at once by message, open streams included', async () => {
    const { control, another } = await redis.openInstallation();
    const { projectId } = await createProject(control);
    await using here = new ApiKeys(control);
    // A clock that stands still: nothing becomes too old, so only the message can have done it.
    await using there = new ApiKeys(await another(), createClock());
    const revoked: string[] = [];
    there.onRevoked((keyId) => revoked.push(keyId));
    const { apiKey, id } = await here.create(operator, projectId, { name: 'k' });
    expect(await here.resolve(apiKey)).toBeDefined();
    expect(await there.resolve(apiKey)).toBeDefined();
    expect(await here.revoke(operator, 'another project', id)).toBe(false);
    expect(await here.revoke(operator, projectId, id)).toBe(true);
    expect(await here.resolve(apiKey)).toBeUndefined();
    await expect.poll(async () => there.resolve(apiKey), { timeout: 4_000 }).toBeUndefined();
    expect(revoked).toContain(id);
    expect(await here.revoke(operator, projectId, id)).toBe(false);
  });

  it('S18: reaches every process within 5 s when the message is lost, also where the key is busy', async () => {
    const { prefix, control } = await redis.openInstallation();
    const { projectId } = await createProject(control);
    await using keys = new ApiKeys(control);
    const revoked: string[] = [];
    keys.onRevoked((keyId) => revoked.push(keyId));
    const { apiKey, id } = await keys.create(operator, projectId, { name: 'k' });
    expect(await keys.resolve(apiKey)).toBeDefined();
    const index = indexKey('api-key', 'hash', hashApiKeySecret(apiKey));
    await redis.raw.del(`${prefix}:{cp}:${index}`, `${prefix}:{cp}:${documentKey('api-key', id)}`);
    await expect.poll(async () => keys.resolve(apiKey), { timeout: 5_000, interval: 20 }).toBeUndefined();
    expect(revoked).toEqual([id]);
  });

  it('a project that changes elsewhere is seen at once, and within 5 s when the message is lost', async () => {
    const { prefix, control, another } = await redis.openInstallation();
    const clock = createClock();
    const { projectId, organizationId } = await createProject(control);
    const projects = new Projects(control, clock);
    await using keys = new ApiKeys(control, clock);
    const { apiKey } = await keys.create(operator, projectId, { name: 'k' });
    await keys.resolve(apiKey);
    const project = await projects.find(projectId);
    const key = documentKey('project', projectId);
    const change = {
      actor: operator,
      action: 'project.update',
      target: { kind: 'project', id: projectId },
    } as const;
    const shorter = { ...project, version: 2, retentionDays: 7 };
    const elsewhere = await another();
    await elsewhere.transact({
      atMs: 0,
      checks: [{ op: 'version', key, version: 1 }],
      writes: [{ op: 'put', key, document: shorter }],
      change,
    });
    await expect.poll(async () => (await projects.find(projectId))?.retentionDays).toBe(7);
    expect((await keys.resolve(apiKey))?.retentionDays).toBe(7);
    await redis.raw.set(
      `${prefix}:{cp}:${key}`,
      JSON.stringify({ ...shorter, version: 3, retentionDays: 3 }),
    );
    clock.forward(5_001);
    expect((await projects.find(projectId))?.retentionDays).toBe(3);
    expect((await keys.resolve(apiKey))?.retentionDays).toBe(3);
    expect(await projects.find(organizationId)).toBeUndefined();
    expect(await projects.find('../x')).toBeUndefined();
  });
});

describe('without Redis', () => {
  it('keys seen in the last 15 min keep resolving, others and later ones are told that it is unavailable', async () => {
    await using server = await startTestRedis();
    const { control } = await server.openInstallation();
    const clock = createClock();
    const { projectId } = await createProject(control);
    await using keys = new ApiKeys(control, clock);
    const { apiKey } = await keys.create(operator, projectId, { name: 'k' });
    const resolved = await keys.resolve(apiKey);
    await server.kill();
    clock.forward(6_000);
    expect(await keys.resolve(apiKey)).toEqual(resolved);
    // The next ones do not even wait for the failure.
    expect(keys.resolveCached(apiKey)).toEqual(resolved);
    clock.forward(15 * 60_000 - 6_000);
    expect(await keys.resolve(apiKey)).toEqual(resolved);
    await expect(keys.resolve(createApiKeySecret())).rejects.toMatchObject({
      name: 'StoreError',
      kind: 'unavailable',
    });
    clock.forward(1);
    await expect(keys.resolve(apiKey)).rejects.toMatchObject({ name: 'StoreError', kind: 'unavailable' });
  });
});
