import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findFreePort } from '@logpond/standalone/store-process';
import { Redis } from 'ioredis';
import { waitFor } from '../../support/wait.ts';

const ROOT = join(import.meta.dirname, '../../..');
const START_MS_MAX = 90_000;

/** The processes of an installation, by what is on their command lines. */
const PROCESS_MARKS = {
  redis: 'redis-server',
  clickhouse: 'standalone/src/clickhouse.ts',
  api: 'apps/api/src/main.ts',
  'ingest-worker': 'apps/ingest-worker/src/main.ts',
  'alert-worker': 'apps/alert-worker/src/main.ts',
} as const;

export type ProcessName = keyof typeof PROCESS_MARKS;
export const PROCESS_NAMES = Object.keys(PROCESS_MARKS) as ProcessName[];

export type Credentials = { baseUrl: string; projectId: string; apiKey: string };

/** The whole product as `npm start` runs it, on a free port with a data directory of its own. */
export class Installation implements AsyncDisposable {
  readonly credentials: Credentials;
  readonly dataDir: string;
  readonly #launcher: ChildProcess;
  readonly #said: () => string;

  private constructor(launcher: ChildProcess, dataDir: string, credentials: Credentials, said: () => string) {
    this.#launcher = launcher;
    this.dataDir = dataDir;
    this.credentials = credentials;
    this.#said = said;
  }

  /** Starts it, in a new directory unless one is given, and waits until it is ready, at most 90 s. */
  static async start(dataDir = mkdtempSync(join(tmpdir(), 'logpond-installation-'))): Promise<Installation> {
    const port = await findFreePort();
    const launcher = spawn(process.execPath, [join(ROOT, 'apps/standalone/src/main.ts')], {
      env: {
        ...process.env,
        LOGPOND_DATA_DIR: dataDir,
        PORT: String(port),
        HOST: '127.0.0.1',
        BASE_PATH: '',
      },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let text = '';
    launcher.stderr.on('data', (part: Buffer) => {
      text += part.toString();
    });
    const credentials = await waitFor(
      'the installation to be ready',
      async () => {
        if (!(await isReady(port))) return undefined;
        return JSON.parse(readFileSync(join(dataDir, 'credentials.json'), 'utf8')) as Credentials;
      },
      START_MS_MAX,
    ).catch(async (error: unknown) => {
      await stopProcess(launcher);
      throw new Error(`the installation did not start; it said: ${text}`, { cause: error });
    });
    return new Installation(launcher, dataDir, credentials, () => text);
  }

  /** Whether the API and both stores answer. */
  async isReady(): Promise<boolean> {
    return isReady(Number(new URL(this.credentials.baseUrl).port));
  }

  /** What the launcher has said so far. */
  get said(): string {
    return this.#said();
  }

  /** The id of one of the launcher's own children; undefined while it is not running. */
  findProcess(name: ProcessName): number | undefined {
    return listChildren(this.#launcher.pid ?? 0).find((pid) =>
      readProc(pid, 'cmdline').includes(PROCESS_MARKS[name]),
    );
  }

  /** A connection to its Redis, which keeps its port while the launcher lives. */
  connectRedis(): Redis {
    const port = /^port (\d+)$/m.exec(readFileSync(join(this.dataDir, 'redis/redis.conf'), 'utf8'))?.[1];
    const secrets = JSON.parse(readFileSync(join(this.dataDir, 'secrets.json'), 'utf8')) as {
      redisPassword: string;
    };
    const options = { password: secrets.redisPassword, maxRetriesPerRequest: null, retryStrategy: () => 100 };
    const redis = new Redis(Number(port), '127.0.0.1', options);
    redis.on('error', () => {});
    return redis;
  }

  /** Ctrl-C. Returns the exit code. */
  async stop(): Promise<number | null> {
    await stopProcess(this.#launcher);
    return this.#launcher.exitCode;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    rmSync(this.dataDir, { recursive: true, force: true });
  }
}

async function isReady(port: number): Promise<boolean> {
  const answer = await fetch(`http://127.0.0.1:${port}/health/ready`, { signal: AbortSignal.timeout(2_000) });
  await answer.body?.cancel();
  return answer.status === 200;
}

async function stopProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGINT');
  await gone;
}

function listChildren(parent: number): number[] {
  const pids = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
  // The field after the name in brackets, which may hold anything, is the state, then the parent.
  return pids.filter((pid) => Number(/^.*\) \S (\d+)/s.exec(readProc(pid, 'stat'))?.[1]) === parent);
}

function readProc(pid: number, file: 'stat' | 'cmdline'): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return '';
  }
}
