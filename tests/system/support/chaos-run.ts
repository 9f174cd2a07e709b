import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { shardKeys } from '@logpond/db/shard-map';
import { waitFor } from '../../support/wait.ts';
import {
  drawAlertWorkerFate,
  drawApiFate,
  drawClickHouseFate,
  drawNetworkFate,
  drawRedisFate,
  drawWorkerFate,
} from './chaos-faults.ts';
import type { Installed } from './chaos-install.ts';
import { openChaosInstallation } from './chaos-install.ts';
import type { Crash } from './chaos-process.ts';
import { runNetworkLane, runProcessLane, runReleaseLane, runStoreLane } from './chaos-lanes.ts';
import { FaultLog } from './chaos-log.ts';
import type { FaultSpan, FaultSummary, Progress } from './chaos-log.ts';
import { judge } from './judge.ts';
import type { Verdict } from './judge.ts';
import { Oracle } from './oracle.ts';
import { createRandom } from './random.ts';
import type { Random } from './random.ts';

const WATCH_MS = 200;
const SAY_MS = 10_000;
const ROWS_PER_REQUEST = 150;
const KEYED_SENDERS = 5;
const UNKEYED_SENDERS = 3;
const PAUSE_MS = 400;
/** A request without a key that broke this often is left alone, so that its copies stay few. */
const AMBIGUOUS_MAX = 3;
const ALTERNATE_MS = 100;
const RECOVERY_MS_MAX = 60_000;
const REST_MS_MAX = 180_000;
const RELEASE_EVERY_MS = 45_000;

export type ChaosOptions = {
  seed: number;
  /** How long faults are injected; coming to rest and judging take longer. */
  seconds: number;
  /** Where the ledger and the processes' logs are kept; absent: the ledger until this process ends. */
  directory?: string;
  /** Told how it goes, every ten seconds. */
  say?: (line: string) => void;
};

export type ChaosReport = {
  verdict: Verdict;
  summaries: FaultSummary[];
  spans: readonly FaultSpan[];
  processKills: number;
  redisKills: number;
  redisPowerLosses: number;
  clickHouseKills: number;
  /** Answers by status; 0 for a connection that broke or was refused. */
  statuses: Map<number, number>;
  replayed: number;
  /** Processes that ended by themselves. */
  crashes: Crash[];
  restMs: number;
  ledgerFile: string;
};

/**
 * Breaks an installation at random for a while, under a steady load of keyed and unkeyed requests; then lets it come
 * to rest and has it judged. The order of faults in each lane follows from the seed.
 */
export async function runChaos(options: ChaosOptions): Promise<ChaosReport> {
  await using installed = await openChaosInstallation(options.seed, options.directory);
  const { rig, apiUrls, tenants } = installed;
  const [url = ''] = apiUrls;
  const { directory } = options;
  const ledger = directory === undefined ? {} : { ledgerDir: directory };
  const oracle = new Oracle({ run: 'chaos', tenants, url, ...ledger });
  const log = new FaultLog(await readProgress(installed, oracle), Date.now, noteIn(directory));
  const watch = startWatch(installed, oracle, log);
  const timers = [
    setInterval(() => alternate(oracle, apiUrls), ALTERNATE_MS),
    setInterval(() => options.say?.(describe(log, oracle)), SAY_MS),
  ];
  try {
    const shared = { rowsPerRequest: ROWS_PER_REQUEST, pauseMs: PAUSE_MS };
    await using keyed = oracle.startLoad({ ...shared, concurrency: KEYED_SENDERS, isKeyed: true });
    await using unkeyed = oracle.startLoad({
      ...shared,
      concurrency: UNKEYED_SENDERS,
      isKeyed: false,
      ambiguousMax: AMBIGUOUS_MAX,
    });
    await injectFaults(installed, log, options);
    options.say?.('no more faults; waiting for the last recoveries');
    await waitFor('all faults to be recovered', () => log.openFaults === 0, RECOVERY_MS_MAX).catch(() => {});
    await Promise.all([keyed.stop(), unkeyed.stop()]);
    const stoppedAt = performance.now();
    await rig.waitForRest(REST_MS_MAX);
    const restMs = performance.now() - stoppedAt;
    await waitForAudits(installed);
    options.say?.(
      `at rest after ${(restMs / 1_000).toFixed(1)} s; judging ${oracle.acknowledgedRows} entries`,
    );
    await waitFor('the API to be ready', async () => installed.isReady(url), REST_MS_MAX);
    const verdict = await judge(rig, oracle, url);
    return { verdict, ...conclude(installed, log, oracle), restMs };
  } finally {
    clearInterval(watch);
    for (const timer of timers) clearInterval(timer);
  }
}

/** Writes down what happened when, beside the ledger. */
function noteIn(directory: string | undefined): ((line: string) => void) | undefined {
  if (directory === undefined) return undefined;
  return (line) => appendFileSync(join(directory, 'faults.log'), `${new Date().toISOString()} ${line}\n`);
}

async function injectFaults(
  installed: Installed,
  log: FaultLog,
  { seed, seconds }: ChaosOptions,
): Promise<void> {
  const { processes, clickhouse, redis } = installed;
  const lane = { log, signal: AbortSignal.timeout(seconds * 1_000) };
  // One number after the other would begin alike.
  const seeds = createRandom(seed);
  const draw = <Fate>(drawFate: (random: Random) => Fate): (() => Fate) => {
    const random = createRandom(Math.floor(seeds() * 2 ** 32));
    return () => drawFate(random);
  };
  const fates = { api: drawApiFate, 'ingest-worker': drawWorkerFate, 'alert-worker': drawAlertWorkerFate };
  const proxies = processes.flatMap((process) => [process.redis, process.clickhouse]);
  const release = { fault: 'F50 rolling restart', everyMs: RELEASE_EVERY_MS };
  await Promise.all([
    ...processes.map(async (process) => runProcessLane(process, draw(fates[process.app]), lane)),
    runStoreLane(redis, draw(drawRedisFate), lane),
    runStoreLane(clickhouse, draw(drawClickHouseFate), lane),
    runNetworkLane(proxies, draw(drawNetworkFate), lane),
    runReleaseLane(processes, release, lane),
  ]);
}

/** Senders go to one API after the other, so that a request is repeated at another one than before. */
function alternate(oracle: Oracle, urls: readonly string[]): void {
  oracle.url = urls[Math.floor(Date.now() / ALTERNATE_MS) % urls.length] ?? '';
}

function startWatch(installed: Installed, oracle: Oracle, log: FaultLog): NodeJS.Timeout {
  let isAsking = false;
  return setInterval(() => {
    // An answer may take as long as Redis is down.
    if (isAsking) return;
    isAsking = true;
    void readProgress(installed, oracle)
      .then((progress) => log.observe(progress))
      .catch(() => undefined)
      .finally(() => {
        isAsking = false;
      });
  }, WATCH_MS);
}

async function readProgress({ rig }: Installed, oracle: Oracle): Promise<Progress> {
  const shards = await rig.readShards();
  return { acknowledged: oracle.acknowledgedRows, shards };
}

/** What ClickHouse dropped in silence is found and stored again by the auditor. */
async function waitForAudits({ rig }: Installed): Promise<void> {
  await waitFor(
    'all audits to be done',
    async () => {
      for (let shard = 0; shard < rig.shards; shard += 1) {
        if ((await rig.redis.llen(shardKeys('lp', shard).audits)) > 0) return false;
      }
      return true;
    },
    REST_MS_MAX,
  );
}

function describe(log: FaultLog, oracle: Oracle): string {
  const faults = log.summarize().reduce((sum, { times }) => sum + times, 0);
  const memory = Math.round(process.memoryUsage.rss() / 1e6);
  const statuses = [...oracle.statuses].map(([status, count]) => `${count} × ${status}`).join(', ');
  return `${faults} faults, ${oracle.acknowledgedRows} entries acknowledged (${statuses}), ${log.openFaults} recovering, runner ${memory} MB`;
}

function conclude(
  installed: Installed,
  log: FaultLog,
  oracle: Oracle,
): Omit<ChaosReport, 'verdict' | 'restMs'> {
  const { statuses, replayed, ledgerFile } = oracle;
  return {
    summaries: log.summarize(),
    spans: log.spans(),
    processKills: log.count('F01') + log.count('F02') + log.count('F05') + log.count('alert worker'),
    redisKills: log.count('F07') + log.count('F08'),
    redisPowerLosses: log.count('F08'),
    clickHouseKills: log.count('F25') + log.count('F26'),
    statuses,
    replayed,
    ledgerFile,
    crashes: installed.processes.flatMap(({ crashes }) => crashes),
  };
}
