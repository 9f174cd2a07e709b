import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findFreePort } from '@logpond/standalone/store-process';
import { waitFor } from '../../support/wait.ts';
import type { StoreControl } from './chaos-lanes.ts';
import { ChaosProcess } from './chaos-process.ts';
import { FakeClickHouse } from './fake-clickhouse.ts';
import { createRandom } from './random.ts';
import type { Random } from './random.ts';
import { Rig } from './rig.ts';
import type { Tenant } from './rig.ts';

const SHARDS = 4;
const TENANTS_PER_SHARD = 2;
const APIS = 2;
const WORKERS = 3;
const START_MS_MAX = 60_000;
const PROBE_MS_MAX = 2_000;
/** Short, so that what ClickHouse dropped is found within the run. */
const AUDIT_AFTER_MS = 3_000;
/** Of the requests to ClickHouse while it refuses some. */
const REFUSED_SHARE = 0.3;
const SLOW_MS = 1_500;

/** What a chaos run breaks. */
export type Installed = AsyncDisposable & {
  rig: Rig;
  tenants: Tenant[];
  processes: ChaosProcess[];
  apiUrls: string[];
  redis: StoreControl;
  clickhouse: StoreControl;
  /** Whether an API answers that both stores do. */
  isReady: (apiUrl: string) => Promise<boolean>;
};

/**
 * Starts two APIs, three ingest workers and an alert worker over stores that can lose their power, with a proxy
 * between each process and each store.
 *
 * @param seed of the answers of a ClickHouse that refuses at random.
 * @param logDir where the processes' logs are kept.
 */
export async function openChaosInstallation(seed: number, logDir?: string): Promise<Installed> {
  await using opened = new AsyncDisposableStack();
  const rig = opened.use(await Rig.open({ shards: SHARDS, powerLoss: ['redis', 'clickhouse'] }));
  const fake = opened.use(await FakeClickHouse.open(rig.env['CLICKHOUSE_URL'] ?? ''));
  const { processes, apiUrls } = await startProcesses(opened, rig.env, {
    redisPort: portOf(rig.env['REDIS_URL']),
    clickhousePort: portOf(fake.url),
    logDir,
  });
  for (const url of apiUrls) await waitFor('the APIs to be ready', async () => isReady(url), START_MS_MAX);
  const tenants = await rig.createTenants(TENANTS_PER_SHARD);
  const kept = opened.move();
  return {
    rig,
    tenants,
    processes,
    apiUrls,
    redis: controlRedis(rig),
    clickhouse: controlClickHouse(rig, fake, createRandom(seed)),
    isReady,
    [Symbol.asyncDispose]: async () => kept.disposeAsync(),
  };
}

async function startProcesses(
  opened: AsyncDisposableStack,
  storeEnv: Readonly<Record<string, string>>,
  { logDir, ...ports }: { redisPort: number; clickhousePort: number; logDir: string | undefined },
): Promise<{ processes: ChaosProcess[]; apiUrls: string[] }> {
  const env = { ...storeEnv, AUDIT_AFTER_MS: String(AUDIT_AFTER_MS) };
  const processes: ChaosProcess[] = [];
  const open = async (app: ChaosProcess['app'], own = {}): Promise<void> => {
    const name = `${app}-${processes.length + 1}.log`;
    const log = logDir === undefined ? {} : { logFile: join(logDir, name) };
    const process = opened.use(await ChaosProcess.open({ app, env: { ...env, ...own }, ...ports, ...log }));
    process.start();
    processes.push(process);
  };
  for (let number = 0; number < WORKERS; number += 1) await open('ingest-worker');
  const apiUrls: string[] = [];
  const tokenDir = mkdtempSync(join(tmpdir(), 'logpond-chaos-'));
  opened.defer(() => rmSync(tokenDir, { recursive: true, force: true }));
  for (let number = 0; number < APIS; number += 1) {
    const port = String(await findFreePort());
    await open('api', { PORT: port, SETUP_TOKEN_FILE: join(tokenDir, port) });
    apiUrls.push(`http://127.0.0.1:${port}`);
  }
  await open('alert-worker');
  return { processes, apiUrls };
}

function controlRedis(rig: Rig): StoreControl {
  return {
    kill: async () => rig.killRedis(),
    losePower: async () => void (await rig.losePower('redis')),
    start: async () => rig.startRedis(),
    disturb: () => {},
    expectInsert: () => {},
    countInserts: () => 0,
  };
}

function controlClickHouse(rig: Rig, fake: FakeClickHouse, random: Random): StoreControl {
  return {
    kill: async () => {
      await rig.killClickHouse();
      fake.forgetHeld();
    },
    losePower: async () => {
      await rig.losePower('clickhouse');
      fake.forgetHeld();
    },
    start: async () => rig.startClickHouse(),
    disturb: (how) => {
      fake.disturb(how === 'refuses' ? { random, probability: REFUSED_SHARE } : undefined);
      fake.slowDown(how === 'slow' ? SLOW_MS : 0);
    },
    expectInsert: (oddity) => fake.expectInserts(oddity),
    countInserts: (oddity) => fake.injected.get(oddity) ?? 0,
  };
}

async function isReady(apiUrl: string): Promise<boolean> {
  try {
    const answer = await fetch(`${apiUrl}/health/ready`, { signal: AbortSignal.timeout(PROBE_MS_MAX) });
    await answer.body?.cancel();
    return answer.status === 200;
  } catch {
    return false;
  }
}

function portOf(url = ''): number {
  return Number(new URL(url).port);
}
