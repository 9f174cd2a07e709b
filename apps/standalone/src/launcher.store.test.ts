import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { inheritEnvironment } from '@logpond/runtime/env';
import { readCommandLine } from './process-info.ts';
import { findFreePort } from './store-process.ts';

type Credentials = Record<
  'baseUrl' | 'email' | 'password' | 'organizationId' | 'projectId' | 'apiKey',
  string
>;

const NAMES = ['redis', 'clickhouse', 'ingest-worker', 'alert-worker', 'api'] as const;
const WAIT = { timeout: 20_000, interval: 50 };

let dataDir = '';
let port = 0;
let launcher: ReturnType<typeof start> | undefined;

function start(): { child: ReturnType<typeof spawn>; output: () => string; exited: Promise<unknown[]> } {
  const env = inheritEnvironment({
    LOGPOND_DATA_DIR: dataDir,
    PORT: String(port),
    REDIS_URL: '',
    CLICKHOUSE_URL: '',
  });
  const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts')], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (text: Buffer) => (output += text.toString()));
  return { child, output: () => output, exited: once(child, 'exit') };
}

async function startReady(): Promise<NonNullable<typeof launcher>> {
  const started = start();
  launcher = started;
  await vi.waitFor(() => expect(started.output()).toContain('Ctrl-C stops everything.'), WAIT);
  return started;
}

async function readJson<T>(name: string): Promise<T> {
  return JSON.parse(await readFile(join(dataDir, name), 'utf8')) as T;
}

async function readPids(): Promise<Record<string, number>> {
  const children = await readJson<Record<string, { pid: number }>>('children.json');
  return Object.fromEntries(Object.entries(children).map(([name, { pid }]) => [name, pid]));
}

/** True while one of these processes lives, whatever its program. */
function areAlive(pids: Record<string, number>): boolean {
  return Object.values(pids).some((pid) => readCommandLine(pid) !== undefined);
}

async function ask(path: string, init: RequestInit = {}): Promise<{ status: number; body: unknown }> {
  const { baseUrl, apiKey } = await readJson<Credentials>('credentials.json');
  const headers = { 'X-API-Key': apiKey, 'Content-Type': 'application/json' };
  const answer = await fetch(`${baseUrl}${path}`, { ...init, headers });
  return { status: answer.status, body: await answer.json() };
}

async function ingest(message: string): Promise<void> {
  const body = JSON.stringify({ logs: [{ service: 'demo', level: 'info', message }] });
  const answer = await ask('/ingest', { method: 'POST', body });
  expect(answer).toMatchObject({ status: 200, body: { received: 1 } });
}

async function isReady(): Promise<boolean> {
  const answer = await fetch(`http://127.0.0.1:${port}/health/ready`).catch(() => undefined);
  await answer?.body?.cancel();
  return answer?.status === 200;
}

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'logpond-launcher-'));
  port = await findFreePort();
});

afterEach(async () => {
  if (launcher && launcher.child.exitCode === null && launcher.child.signalCode === null) {
    launcher.child.kill('SIGTERM');
    await launcher.exited;
  }
});

afterAll(() => rm(dataDir, { recursive: true, force: true }));

describe('npm start', () => {
  it('the first start prints credentials that work and keeps them in a file of mode 0600', async () => {
    const { output } = await startReady();
    const credentials = await readJson<Credentials>('credentials.json');
    expect(Object.keys(credentials)).toEqual([
      'baseUrl',
      'email',
      'password',
      'organizationId',
      'projectId',
      'apiKey',
    ]);
    expect(credentials.baseUrl).toBe(`http://127.0.0.1:${port}/api/v1`);
    for (const file of ['credentials.json', 'secrets.json']) {
      expect((await stat(join(dataDir, file))).mode & 0o777).toBe(0o600);
    }
    expect(output()).toContain(credentials.password);
    const { email, password } = credentials;
    const login = await ask('/auth/login', { method: 'POST', body: JSON.stringify({ email, password }) });
    expect(login).toMatchObject({ status: 200, body: { user: { email, isAdmin: true } } });
    await ingest('hello from the first start');
    await vi.waitFor(async () => {
      expect(await ask('/logs?q=hello')).toMatchObject({ status: 200, body: { total: 1 } });
    }, WAIT);
  });

  it('each process that is killed is back, and what was acknowledged is still there once', async () => {
    await startReady();
    for (const name of NAMES) {
      await ingest(`before ${name} is killed`);
      const pid = (await readPids())[name] ?? 0;
      process.kill(pid, 'SIGKILL');
      await vi.waitFor(async () => expect((await readPids())[name] ?? pid).not.toBe(pid), {
        timeout: 2_000,
        interval: 20,
      });
      await vi.waitFor(async () => expect(await isReady()).toBe(true), WAIT);
    }
    await vi.waitFor(async () => {
      expect(await ask('/logs?q=before')).toMatchObject({ status: 200, body: { total: NAMES.length } });
    }, WAIT);
  });

  it('Ctrl-C stops the api first, then the workers, then the stores, and leaves nothing running', async () => {
    const { child, output, exited } = await startReady();
    const pids = await readPids();
    expect(Object.keys(pids)).toHaveLength(NAMES.length);
    child.kill('SIGINT');
    child.kill('SIGINT');
    expect(await exited).toEqual([0, null]);
    const lines = output()
      .split('\n')
      .filter((line) => line.startsWith('logpond: stop'));
    expect(lines).toEqual([
      'logpond: stopping api',
      'logpond: stopping ingest-worker and alert-worker',
      'logpond: stopping clickhouse',
      'logpond: stopping redis',
      'logpond: stopped',
    ]);
    expect(areAlive(pids)).toBe(false);
  });

  it('a second start keeps data and credentials and shows no secret', async () => {
    const before = await readJson<Credentials>('credentials.json');
    const { output } = await startReady();
    expect(await readJson('credentials.json')).toEqual(before);
    expect(output()).not.toContain(before.password);
    expect(output()).not.toContain(before.apiKey);
    expect(await ask('/logs?q=hello')).toMatchObject({ status: 200, body: { total: 1 } });
  });

  it('while it runs, a second launcher on the directory and a third on the port are refused in one sentence', async () => {
    const { child } = await startReady();
    const sameDirectory = start();
    expect(await sameDirectory.exited).toEqual([1, null]);
    expect(sameDirectory.output()).toContain(`already, as process ${child.pid}`);
    const former = dataDir;
    dataDir = await mkdtemp(join(tmpdir(), 'logpond-other-'));
    const samePort = start();
    const other = dataDir;
    dataDir = former;
    expect(await samePort.exited).toEqual([1, null]);
    expect(samePort.output()).toBe(
      `logpond: Port ${port} on 127.0.0.1 is in use by another program: stop it, or choose another port, for example PORT=${port + 1} npm start\n`,
    );
    await rm(other, { recursive: true });
    expect(await isReady()).toBe(true);
  });

  it('after kill -9 of the launcher nothing stays, and the next start works on the same data', async () => {
    const { child, exited } = await startReady();
    const pids = await readPids();
    child.kill('SIGKILL');
    await exited;
    await startReady();
    expect(areAlive(pids)).toBe(false);
    expect(await ask('/logs?q=before')).toMatchObject({ status: 200, body: { total: NAMES.length } });
  });

  it('a setting that a process refuses ends everything with code 78 and the sentence that says what is wrong', async () => {
    const env = inheritEnvironment({ LOGPOND_DATA_DIR: dataDir, PORT: String(port), INGEST_BATCH_MAX: '5' });
    const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts')], {
      env,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let output = '';
    child.stderr.on('data', (text: Buffer) => (output += text.toString()));
    expect(await once(child, 'exit')).toEqual([78, null]);
    expect(output).toMatch(/api does not accept its configuration:\n.*INGEST_BATCH_MAX/s);
  });
});
