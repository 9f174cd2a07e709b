import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startApp } from '../support/app-process.ts';
import { Rig } from './support/rig.ts';

const APPS = ['api', 'ingest-worker', 'alert-worker'] as const;
const EXIT_CONFIG = 78;
const SECRET = 'hunter2-must-not-be-shown';

type Refusal = { app: string; code: number | null; said: string };
type Env = Readonly<Record<string, string>>;

/** Starts an app that is to refuse, and waits until it is gone. */
async function start(app: string, env: Env): Promise<Refusal> {
  await using process = startApp(app, env);
  // The pipes may still hold what it said when it is gone.
  await once(process.child, 'close', { signal: AbortSignal.timeout(30_000) });
  return { app, code: process.child.exitCode, said: process.output() };
}

/** Starts every app at once; all are to refuse with this code. */
async function startAll(env: Env, code: number): Promise<Refusal[]> {
  const refusals = await Promise.all(APPS.map(async (app) => start(app, env)));
  expect(refusals.map((refusal) => `${refusal.app} ${refusal.code}`)).toEqual(
    APPS.map((app) => `${app} ${code}`),
  );
  return refusals;
}

describe('F51: a configuration that cannot be used', () => {
  let directory: string;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'logpond-settings-'));
    writeFileSync(join(directory, 'empty'), '');
    writeFileSync(join(directory, 'secret'), SECRET);
  });
  afterAll(async () => rm(directory, { recursive: true, force: true }));

  it('every app says all that is wrong at once, one line a setting, shows no secret, and exits with 78', async () => {
    const env = {
      REDIS_URL: `http://user:${SECRET}@redis:6379`,
      CLICKHOUSE_URL_FILE: join(directory, 'empty'),
      CLICKHOUSE_USER_FILE: join(directory, 'absent'),
      CLICKHOUSE_PASSWORD: SECRET,
      CLICKHOUSE_PASSWORD_FILE: join(directory, 'secret'),
      KEY_PREFIX: 'Not A Prefix',
      REDIS_BUDGET_BYTES: '1024',
      SHARDS: '25',
      METRICS_PORT: 'eighty',
      LOG_LEVEL: 'loud',
    };
    for (const { said } of await startAll(env, EXIT_CONFIG)) {
      expect(said).not.toContain(SECRET);
      const lines = said.split('\n').filter((line) => line.startsWith('  '));
      const wrong = [
        'CLICKHOUSE_PASSWORD',
        'CLICKHOUSE_URL',
        'CLICKHOUSE_USER_FILE',
        'KEY_PREFIX',
        'LOG_LEVEL',
        'METRICS_PORT',
        'REDIS_BUDGET_BYTES',
        'REDIS_URL',
        'SHARDS',
      ];
      expect(lines).toHaveLength(wrong.length);
      expect(new Set(lines.map((line) => line.trim().split(':')[0]))).toEqual(new Set(wrong));
      expect(said).toContain('SHARDS: expected number to be <=24; got "25"');
    }
  });

  it('every app refuses several Redis servers while REDIS_MODE is single', async () => {
    const env = { REDIS_URL: 'redis://one:6379,redis://two:6379' };
    for (const { said } of await startAll(env, EXIT_CONFIG))
      expect(said).toContain('REDIS_URL: expected one URL while REDIS_MODE is single');
  });

  it('every app refuses a failpoint that would never be passed', async () => {
    for (const { said } of await startAll({ FAILPOINT: 'W4:kill' }, EXIT_CONFIG))
      expect(said).toContain('FAILPOINT: expected items such as');
  });

  it('each app refuses its own settings too', async () => {
    const [api, worker] = await Promise.all([
      start('api', { PORT: '70000' }),
      start('ingest-worker', { FLUSH_ROWS_MAX: '0' }),
    ]);
    expect(api.said).toContain('PORT: expected number to be <=65535; got "70000"');
    expect(worker.said).toContain('FLUSH_ROWS_MAX: expected number to be >=1; got "0"');
    expect([api.code, worker.code]).toEqual([EXIT_CONFIG, EXIT_CONFIG]);
  });
});

describe('F51: stores that would break the promise', () => {
  let rig: Rig;
  beforeAll(async () => {
    rig = await Rig.open({ shards: 2 });
    rig.startWorker();
    await rig.startApi();
  });
  afterAll(async () => rig[Symbol.asyncDispose]());

  it('every app refuses another number of shards than the streams were begun with', async () => {
    for (const { said } of await startAll({ ...rig.env, SHARDS: '3' }, 1))
      expect(said).toContain('SHARDS: expected 2, as these streams were begun with; got 3');
  });

  it('every app refuses a Redis that answers before it has synced', async () => {
    await rig.redis.config('SET', 'appendfsync', 'everysec');
    try {
      for (const { said } of await startAll(rig.env, 1))
        expect(said).toContain('appendfsync: expected always, got everysec');
    } finally {
      await rig.redis.config('SET', 'appendfsync', 'always');
    }
  });

  it('ingest-worker refuses a table without a deduplication window', async () => {
    await rig.clickhouse.command({
      query: 'ALTER TABLE logs MODIFY SETTING non_replicated_deduplication_window = 0',
    });
    const { code, said } = await start('ingest-worker', rig.env);
    expect(said).toContain('expected a deduplication window above 0');
    expect(code).toBe(1);
  });
});
