import { once } from 'node:events';
import { createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { EXIT_CONFIG } from '@logpond/runtime/env';
import {
  chooseClickHouse,
  chooseRedis,
  findMailOutbox,
  renderAlertEnvironment,
  renderAppSpec,
  renderStoreEnvironment,
} from './children.ts';
import type { Store } from './children.ts';
import type { LauncherConfig } from './config.ts';
import { DataDir, LauncherError } from './data-dir.ts';
import { prepareInstallation } from './first-start.ts';
import { CredentialsFile, readSecrets } from './installation.ts';
import { Supervisor } from './supervisor.ts';
import { renderWelcomePage } from './welcome-page.ts';

const POLL_MS = 50;
const PROBE_MS_MAX = 2_000;
const STORE_READY_MS_MAX = 120_000;
/** After this long without an answer the person at the terminal is told where to look. */
const READY_MS_EXPECTED = 60_000;

/** Readers first, stores last: whoever writes is gone before what it writes to. */
const STOP_ORDER = [['api'], ['ingest-worker', 'alert-worker'], ['clickhouse'], ['redis']] as const;

/**
 * Runs all of Logpond on this machine until `signal` is aborted, then stops it in order; `killSignal` cuts that
 * short. Resolves with the exit code. Throws LauncherError when it cannot start.
 */
export async function runLauncher(
  config: LauncherConfig,
  { signal, killSignal, say }: { signal: AbortSignal; killSignal: AbortSignal; say: (line: string) => void },
): Promise<number> {
  using dataDir = await DataDir.open(config.LOGPOND_DATA_DIR);
  await checkPort(config);
  const refused = new AbortController();
  using supervisor = new Supervisor({
    dataDir,
    say,
    onRefused: (name, message) => {
      say(`${name} does not accept its configuration:\n${message}`);
      refused.abort();
    },
  });
  killSignal.addEventListener('abort', () => supervisor.killAll(), { once: true });
  const stopped = AbortSignal.any([signal, refused.signal]);
  try {
    await startAll(config, dataDir, supervisor, { signal: stopped, say });
    if (!stopped.aborted) await once(stopped, 'abort');
  } catch (error) {
    if (!stopped.aborted) throw error;
  } finally {
    await stopAll(supervisor, say);
  }
  return refused.signal.aborted ? EXIT_CONFIG : 0;
}

async function startAll(
  config: LauncherConfig,
  dataDir: DataDir,
  supervisor: Supervisor,
  { signal, say }: { signal: AbortSignal; say: (line: string) => void },
): Promise<void> {
  const secrets = readSecrets(dataDir);
  const redis = await chooseRedis(config, dataDir, secrets);
  const clickhouse = await chooseClickHouse(config, dataDir, secrets);
  const embedded = [redis, clickhouse].filter((store) => store.embedded !== undefined);
  say(embedded.length > 0 ? 'starting the stores' : 'using the stores of REDIS_URL and CLICKHOUSE_URL');
  for (const store of embedded) if (store.embedded) supervisor.start(store.embedded.spec);
  await Promise.all(embedded.map((store) => waitForStore(store, signal)));

  const file = new CredentialsFile(dataDir);
  const settings = { ...config, REDIS_URL: redis.url };
  const installation = await prepareInstallation(settings, file, `${config.url}/api/v1`).catch(
    (cause: unknown) => {
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new LauncherError(`The installation cannot be prepared: ${reason}`, { cause });
    },
  );
  const env = renderStoreEnvironment(config, redis, clickhouse, secrets);
  say('starting the api and the workers');
  supervisor.start(renderAppSpec('ingest-worker', env));
  supervisor.start(renderAppSpec('alert-worker', { ...env, ...renderAlertEnvironment(config, dataDir) }));
  const apiEnv = {
    PORT: String(config.PORT),
    HOST: config.HOST,
    BASE_PATH: config.BASE_PATH,
    SETUP_TOKEN_FILE: dataDir.resolve('setup-token'),
  };
  supervisor.start(renderAppSpec('api', { ...env, ...apiEnv }));
  const logsPath = dataDir.resolve('logs');
  await waitForApi(`${config.url}/health/ready`, signal, () => {
    say(`the api is not ready yet; its log and those of the others are in ${logsPath}`);
  });
  const mailsPath = config.SMTP_URL === undefined ? findMailOutbox(config, dataDir) : undefined;
  const facts = { url: config.url, installation, credentialsPath: file.path, logsPath, mailsPath };
  process.stdout.write(`${renderWelcomePage(facts)}\n`);
}

async function stopAll(supervisor: Supervisor, say: (line: string) => void): Promise<void> {
  let hasStopped = false;
  for (const names of STOP_ORDER) {
    const running = names.filter((name) => supervisor.isRunning(name));
    if (running.length > 0) say(`stopping ${running.join(' and ')}`);
    await supervisor.stop(names);
    hasStopped ||= running.length > 0;
  }
  if (hasStopped) say('stopped');
}

async function waitForStore(store: Store, signal: AbortSignal): Promise<void> {
  if (!store.embedded) return;
  const { spec, isReady } = store.embedded;
  const giveUpAt = Date.now() + STORE_READY_MS_MAX;
  while (!(await isReady())) {
    if (Date.now() > giveUpAt) {
      throw new LauncherError(
        `${spec.name} did not answer within ${STORE_READY_MS_MAX / 1000} s; its log says why.`,
      );
    }
    await delay(POLL_MS, undefined, { signal });
  }
}

async function waitForApi(url: string, signal: AbortSignal, onLate: () => void): Promise<void> {
  const late = setTimeout(onLate, READY_MS_EXPECTED);
  try {
    while (!(await isAnswering(url, signal))) await delay(POLL_MS, undefined, { signal });
  } finally {
    clearTimeout(late);
  }
}

async function isAnswering(url: string, signal: AbortSignal): Promise<boolean> {
  try {
    const probe = AbortSignal.any([signal, AbortSignal.timeout(PROBE_MS_MAX)]);
    const answer = await fetch(url, { signal: probe });
    await answer.body?.cancel();
    return answer.status === 200;
  } catch {
    return false;
  }
}

/** Before anything is started: a port that somebody else has would only show as an api that keeps ending. */
async function checkPort({ PORT, HOST }: LauncherConfig): Promise<void> {
  const server = createServer();
  server.listen(PORT, HOST);
  try {
    await once(server, 'listening');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    const reasons: Record<string, string> = {
      EADDRINUSE: `Port ${PORT} on ${HOST} is in use by another program: stop it, or choose another port, for example PORT=${PORT < 65_535 ? PORT + 1 : 8080} npm start`,
      EACCES: `Port ${PORT} on ${HOST} may be opened by root only: choose one above 1023 with PORT=`,
      EADDRNOTAVAIL: `HOST=${HOST} is not an address of this machine: use 127.0.0.1, or 0.0.0.0 for all of them`,
      ENOTFOUND: `HOST=${HOST} is not a known name: use an address, such as 127.0.0.1`,
    };
    throw new LauncherError(reasons[code] ?? `Cannot listen on ${HOST} port ${PORT}: ${String(error)}`, {
      cause: error,
    });
  }
  server.close();
  await once(server, 'close');
}
