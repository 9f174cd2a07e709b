import { argon2id, hash } from 'argon2';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Accounts } from '@logpond/db/accounts';
import {
  PASSWORD,
  countFulfilled,
  createProject,
  operator,
  startTestRedis,
} from './control-plane-fixture.ts';
import type { TestRedis } from './control-plane-fixture.ts';
import { documentKey } from '@logpond/db/control-store';
import { draftSession } from '@logpond/db/sessions';

let redis: TestRedis;

beforeAll(async () => {
  redis = await startTestRedis();
});

afterEach(async () => redis.closeInstallations());

afterAll(async () => redis[Symbol.asyncDispose]());

describe('accounts', () => {
  it('S58: of 100 parallel registrations with one setup token one succeeds', async () => {
    const { prefix, control, another } = await redis.openInstallation();
    const processes = [control, await another(), await another(), await another()];
    const accounts = processes.map((store) => new Accounts(store));
    const setupToken = await new Accounts(control).issueSetupToken();
    const outcomes = await Promise.allSettled(
      Array.from({ length: 100 }, async (_, number) => {
        const input = { email: `u${number}@example.com`, password: PASSWORD, name: 'U', setupToken };
        return accounts[number % 4]?.register({ kind: 'system' }, input, { signup: 'closed' });
      }),
    );
    expect(countFulfilled(outcomes)).toBe(1);
    expect(await redis.raw.keys(`${prefix}:{cp}:user:*`)).toHaveLength(1);
    const codes = outcomes.map((outcome) =>
      outcome.status === 'rejected' ? (outcome.reason as { code: string }).code : 'CREATED',
    );
    expect(new Set([...codes, 'FORBIDDEN', 'RATE_LIMITED', 'CREATED']).size).toBe(3);
  });

  it('the first account needs the latest setup token, and is the administrator', async () => {
    const { control } = await redis.openInstallation();
    let nowMs = 1_000_000;
    const accounts = new Accounts(control, { now: () => nowMs });
    const input = { email: 'Ada@Example.com', password: PASSWORD, name: 'Ada' };
    const closed = { signup: 'closed' } as const;
    const former = await accounts.issueSetupToken();
    await expect(accounts.register(operator, input, { signup: 'open' })).rejects.toMatchObject({
      code: 'SETUP_REQUIRED',
    });
    const setupToken = await accounts.issueSetupToken();
    await expect(accounts.register(operator, { ...input, setupToken: former }, closed)).rejects.toMatchObject(
      { code: 'FORBIDDEN' },
    );
    nowMs += 3_600_000;
    await expect(accounts.register(operator, { ...input, setupToken }, closed)).rejects.toMatchObject({
      code: 'FORBIDDEN',
    });
    const fresh = await accounts.issueSetupToken();
    expect(await accounts.hasUsers()).toBe(false);
    const grant = await accounts.register(operator, { ...input, setupToken: fresh }, closed);
    expect(grant.user).toMatchObject({ email: 'Ada@Example.com', isAdmin: true });
    expect(await accounts.hasUsers()).toBe(true);
    await expect(accounts.issueSetupToken()).rejects.toMatchObject({ code: 'CONFLICT' });
    await expect(accounts.register(operator, { ...input, setupToken: fresh }, closed)).rejects.toMatchObject({
      code: 'FORBIDDEN',
    });
    await expect(accounts.register(operator, input, { signup: 'open' })).rejects.toMatchObject({
      code: 'CONFLICT',
    });
    const second = await accounts.register(
      operator,
      { ...input, email: 'b@example.com' },
      { signup: 'open' },
    );
    expect(second.user.isAdmin).toBe(false);
  });

  it('one e-mail address, in any letter case, is one account in a race', async () => {
    const { control } = await redis.openInstallation();
    const accounts = new Accounts(control);
    const outcomes = await Promise.allSettled(
      ['ada@example.com', 'ADA@example.com', 'Ada@Example.Com'].map(async (email) =>
        accounts.createUser(operator, { email, password: PASSWORD, name: 'Ada', isAdmin: false }),
      ),
    );
    expect(countFulfilled(outcomes)).toBe(1);
  });

  it('S09, S11: a session is found by its token for 30 days or until the logout, and only its hash is kept', async () => {
    const { prefix, control } = await redis.openInstallation();
    let nowMs = Date.now();
    const accounts = new Accounts(control, { now: () => nowMs });
    const { userId } = await createProject(control);
    const grant = await accounts.login('ADA@example.com', PASSWORD);
    const other = await accounts.login('ada@example.com', PASSWORD);
    expect(grant?.token).toMatch(/^ls_[A-Za-z0-9_-]{43}$/);
    expect(await accounts.login('ada@example.com', 'wrong')).toBeUndefined();
    expect(await accounts.login('nobody@example.com', PASSWORD)).toBeUndefined();
    expect((await accounts.findSession(grant?.token ?? ''))?.user.id).toBe(userId);
    expect((await redis.raw.keys(`${prefix}:*`)).join(' ')).not.toContain(grant?.token.slice(3));
    await accounts.logout(grant?.token ?? '');
    expect(await accounts.findSession(grant?.token ?? '')).toBeUndefined();
    expect(await accounts.findSession('ls_')).toBeUndefined();
    nowMs += 30 * 86_400_000 - 1;
    expect(await accounts.findSession(other?.token ?? '')).toBeDefined();
    nowMs += 1;
    expect(await accounts.findSession(other?.token ?? '')).toBeUndefined();
  });

  it('S03: a login renews a hash that was made with weaker parameters', async () => {
    const { prefix, control } = await redis.openInstallation();
    const { userId } = await createProject(control);
    const accounts = new Accounts(control);
    const key = `${prefix}:{cp}:${documentKey('user', userId)}`;
    const weaker = await hash(PASSWORD, { type: argon2id, memoryCost: 8_192, timeCost: 2, parallelism: 1 });
    const text = (await redis.raw.get(key)) ?? '';
    await redis.raw.set(key, text.replace(/\$argon2id[^"]*/, weaker));
    const grants = await Promise.all(
      Array.from({ length: 4 }, () => accounts.login('ada@example.com', PASSWORD)),
    );
    expect(grants.every((grant) => grant?.user.id === userId)).toBe(true);
    expect(await redis.raw.get(key)).toMatch(/m=19456/);
    expect(await redis.raw.get(key)).toMatch(/^\{"version":2,/);
    expect(await accounts.login('ada@example.com', PASSWORD)).toBeDefined();
  });

  it('a user has at most 100 sessions; the next one ends the oldest', async () => {
    const { prefix, control } = await redis.openInstallation();
    const change = { actor: operator, action: 'session.open', target: { kind: 'user', id: 'u' } } as const;
    for (let number = 0; number < 103; number += 1) {
      const { writes } = await draftSession(control, { userId: 'u', ip: undefined, nowMs: 1_000 + number });
      await control.transact({ atMs: 0, checks: [], writes, change });
    }
    const keys = await redis.raw.keys(`${prefix}:{cp}:session:*`);
    const texts = await redis.raw.mget(keys);
    expect(texts).toHaveLength(100);
    expect(texts.join(' ')).toContain('"createdAt":"1970-01-01T00:00:01.003Z"');
    expect(texts.join(' ')).not.toContain('"createdAt":"1970-01-01T00:00:01.002Z"');
  });
});
