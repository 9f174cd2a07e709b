import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Accounts } from '@logpond/db/accounts';
import {
  PASSWORD,
  countFulfilled,
  createProject,
  openAlertRules,
  operator,
  startTestRedis,
} from './control-plane-fixture.ts';
import type { TestRedis } from './control-plane-fixture.ts';
import { childrenKey, documentKey, indexKey, installationSecret } from '@logpond/db/control-store';
import { Organizations } from '@logpond/db/organizations';
import { Projects } from '@logpond/db/projects';

let redis: TestRedis;

beforeAll(async () => {
  redis = await startTestRedis();
});

afterEach(async () => redis.closeInstallations());

afterAll(async () => redis[Symbol.asyncDispose]());

describe('transact', () => {
  const change = { actor: operator, action: 'test', target: { kind: 'project', id: 'p' } } as const;
  const document = { version: 1, text: 'lone \ud800, " and \\u0000' };

  it('writes everything, or nothing at all when one check fails', async () => {
    const { prefix, control } = await redis.openInstallation();
    const writes = [
      { op: 'put', key: documentKey('project', 'p'), document },
      { op: 'point', key: indexKey('project', 'slug', 's'), value: 'p' },
      { op: 'add', key: childrenKey('projects', 'organization', 'o'), member: 'p' },
    ] as const;
    const absent = { op: 'absent', key: documentKey('project', 'p') } as const;
    const missing = { op: 'exists', key: documentKey('organization', 'o') } as const;
    expect(await control.transact({ atMs: 0, checks: [absent, missing], writes, change })).toEqual({
      committed: false,
      failed: missing,
    });
    expect(await redis.raw.keys(`${prefix}:*`)).toEqual([]);
    expect(await control.transact({ atMs: 0, checks: [absent], writes, change })).toEqual({
      committed: true,
    });
    expect(await control.readByIndex('project', 'slug', 's')).toEqual(document);
    expect(await control.listChildren(childrenKey('projects', 'organization', 'o'))).toEqual(['p']);
    expect(await control.transact({ atMs: 0, checks: [absent], writes, change })).toEqual({
      committed: false,
      failed: absent,
    });
    expect(await redis.raw.xlen(`${prefix}:{cp}:changes`)).toBe(1);
  });

  it('lets one of two writers of the same version through, whatever the document holds', async () => {
    const { control } = await redis.openInstallation();
    const key = documentKey('project', 'p');
    await control.transact({ atMs: 0, checks: [], writes: [{ op: 'put', key, document }], change });
    const outcomes = await Promise.all(
      Array.from({ length: 20 }, async (_, number) => {
        const next = { text: `writer ${number}`, version: 2 };
        const checks = [{ op: 'version', key, version: 1 }] as const;
        return control.transact({ atMs: 0, checks, writes: [{ op: 'put', key, document: next }], change });
      }),
    );
    expect(outcomes.filter(({ committed }) => committed)).toHaveLength(1);
  });

  it('logs who did what with every document that a restore needs, and no session', async () => {
    const { prefix, control } = await redis.openInstallation();
    const { userId, projectId } = await createProject(control);
    await new Accounts(control).login('ada@example.com', PASSWORD, '192.0.2.1');
    const entries = await redis.raw.xrange(`${prefix}:{cp}:changes`, '-', '+');
    const changes = entries.map(
      ([, fields]) => JSON.parse(fields[1] ?? '') as { action: string; actor: unknown; target: unknown },
    );
    expect(changes.map(({ action }) => action)).toEqual([
      'user.create',
      'organization.create',
      'project.create',
      'session.open',
    ]);
    expect(changes[2]).toMatchObject({ actor: operator, target: { kind: 'project', id: projectId } });
    expect(changes[3]).toMatchObject({ actor: { kind: 'user', id: userId, ip: '192.0.2.1' } });
    expect(entries[2]?.[1][3]).toContain(`"project:${projectId}"`);
    expect(entries[3]?.[1][3]).not.toContain('"session:');
    expect(JSON.stringify(changes)).not.toContain('argon2id');
  });

  it('trims the change log to about seven days', async () => {
    const { prefix, control } = await redis.openInstallation();
    const stream = `${prefix}:{cp}:changes`;
    const pipeline = redis.raw.pipeline();
    for (let number = 1; number <= 1_000; number += 1) pipeline.xadd(stream, `${number}-0`, 'change', '{}');
    await pipeline.exec();
    await control.transact({ atMs: 0, checks: [], writes: [], change });
    expect(await redis.raw.xlen(stream)).toBeLessThan(200);
  });
});

describe('what changed', () => {
  it('is told to this process at once and to others by message, also after their connection broke', async () => {
    const { prefix, control, another } = await redis.openInstallation();
    const there = await another();
    const seen: string[] = [];
    control.onChanged((changed) => seen.push(...changed.map(({ key }) => `here ${key}`)));
    there.onChanged((changed) => seen.push(...changed.map(({ key }) => `there ${key}`)));
    const countSubscribers = async (): Promise<unknown> => {
      const [, count] = await redis.raw.pubsub('NUMSUB', `${prefix}:{cp}:changed`);
      return count;
    };
    await expect.poll(countSubscribers).toBe(2);
    await redis.raw.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await expect.poll(countSubscribers).toBe(2);
    const document = { version: 1 };
    const change = { actor: operator, action: 'test', target: { kind: 'project', id: 'p' } } as const;
    const key = documentKey('project', 'p');
    await control.transact({ atMs: 0, checks: [], writes: [{ op: 'put', key, document }], change });
    expect(seen[0]).toBe('here project:p');
    await expect.poll(() => seen).toEqual(['here project:p', 'there project:p']);
  });
});

describe('organizations, projects and rules', () => {
  it('one slug is one organization, and one project in its organization, in a race', async () => {
    const { control } = await redis.openInstallation();
    const { userId, organizationId } = await createProject(control);
    const organizations = new Organizations(control);
    const projects = new Projects(control);
    const named = await Promise.allSettled(
      Array.from({ length: 30 }, () => organizations.create(operator, userId, { name: 'My Company' })),
    );
    expect(countFulfilled(named)).toBe(1);
    const [second] = (await organizations.listForUser(userId)).slice(-1);
    expect(second).toMatchObject({ slug: 'my-company', role: 'owner', description: null });
    const inFirst = await Promise.allSettled(
      Array.from({ length: 30 }, () => projects.create(operator, { organizationId, name: 'Web' })),
    );
    expect(countFulfilled(inFirst)).toBe(1);
    await projects.create(operator, { organizationId: second?.id ?? '', name: 'Web' });
    expect((await projects.listByOrganization(organizationId)).map(({ slug }) => slug)).toEqual([
      'shop',
      'web',
    ]);
    expect(await organizations.roleOf(organizationId, userId)).toBe('owner');
    expect(await organizations.roleOf(organizationId, 'somebody else')).toBeUndefined();
    await expect(projects.create(operator, { organizationId: 'none', name: 'x' })).rejects.toMatchObject({
      code: 'NOT_FOUND',
    });
  });

  it('S59: a project has at most 500 rules, also in a race for the last place', async () => {
    const installation = await redis.openInstallation();
    const { projectId } = await createProject(installation.control);
    const rules = await openAlertRules(installation);
    const condition = {
      field: 'level',
      operator: 'equals',
      value: 'error',
      threshold: 5,
      timeWindow: '5m',
    } as const;
    const draft = { name: 'r', enabled: true, condition, notifications: [] };
    const outcomes = await Promise.allSettled(
      Array.from({ length: 510 }, () => rules.create(operator, projectId, draft)),
    );
    expect(countFulfilled(outcomes)).toBe(500);
    const list = await rules.list(projectId);
    expect(list).toHaveLength(500);
    expect(list[0]).toMatchObject({ ...draft, projectId, version: 1 });
  });

  it('the installation has one secret for all processes', async () => {
    const { control, another } = await redis.openInstallation();
    const stores = [control, await another(), await another()];
    const secrets = await Promise.all(stores.map(async (store) => installationSecret(store)));
    expect(new Set(secrets).size).toBe(1);
    expect(Buffer.from(secrets[0] ?? '', 'base64url')).toHaveLength(32);
  });
});
