import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Accounts } from '@logpond/db/accounts';
import { connectRedis } from '@logpond/db/connect';
import { ControlStore } from '@logpond/db/control-store';
import { Projects } from '@logpond/db/projects';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DataDir } from './data-dir.ts';
import { prepareInstallation } from './first-start.ts';
import { CredentialsFile } from './installation.ts';
import { spawnRedis } from './redis.ts';

const BASE_URL = 'http://127.0.0.1:8080/api/v1';

let directory = '';
let redis: Awaited<ReturnType<typeof spawnRedis>>;
const settings = (): Parameters<typeof prepareInstallation>[0] => ({
  REDIS_URL: redis.url,
  KEY_PREFIX: 'lp',
  SHARDS: 2,
  REDIS_BUDGET_BYTES: 1_073_741_824,
});

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'logpond-first-start-'));
  redis = await spawnRedis({ dataDir: join(directory, 'redis') });
});

afterAll(async () => {
  await redis.stop();
  await rm(directory, { recursive: true, force: true });
});

describe('prepareInstallation', () => {
  it('a first start that was killed after the account was made is completed by the next one', async () => {
    using dataDir = await DataDir.open(join(directory, 'one'));
    const file = new CredentialsFile(dataDir);
    const draft = file.readDraft();
    await using store = await connectRedis(settings());
    const control = new ControlStore(store);
    await new Accounts(control).createUser(
      { kind: 'system' },
      { ...draft, name: 'Administrator', isAdmin: true },
    );

    const installation = await prepareInstallation(settings(), file, BASE_URL);
    expect(installation).toMatchObject({ kind: 'new', credentials: { ...draft, baseUrl: BASE_URL } });
    const organizationId = file.read()?.organizationId ?? '';
    expect(await new Projects(control).listByOrganization(organizationId)).toHaveLength(1);
  });

  it('later starts change nothing but the address', async () => {
    using dataDir = await DataDir.open(join(directory, 'one'));
    const file = new CredentialsFile(dataDir);
    const before = file.read();
    const moved = 'http://127.0.0.1:9090/logs/api/v1';
    expect(await prepareInstallation(settings(), file, moved)).toMatchObject({ kind: 'known' });
    expect(file.read()).toEqual({ ...before, baseUrl: moved });
  });

  it('a directory that knows nothing of the accounts in Redis leaves them alone', async () => {
    using dataDir = await DataDir.open(join(directory, 'two'));
    const file = new CredentialsFile(dataDir);
    expect(await prepareInstallation(settings(), file, BASE_URL)).toEqual({ kind: 'foreign' });
    expect(file.read()).toBeUndefined();
  });

  it('credentials of stores that are gone are put aside and new ones are made', async () => {
    using dataDir = await DataDir.open(join(directory, 'one'));
    const file = new CredentialsFile(dataDir);
    const before = file.read();
    const empty = { ...settings(), KEY_PREFIX: 'other' };
    expect(await prepareInstallation(empty, file, BASE_URL)).toMatchObject({ kind: 'new' });
    expect(file.read()?.apiKey).not.toBe(before?.apiKey);
  });
});
