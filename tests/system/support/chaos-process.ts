import { once } from 'node:events';
import { appendFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { startApp } from '../../support/app-process.ts';
import type { AppProcess } from '../../support/app-process.ts';
import { ChaosProxy } from './chaos-proxy.ts';

const OUTPUT_CHARS_SHOWN = 2_000;
const LOG_CHARS_MAX = 100_000_000;
/** What the apps say when they are ready. */
const BEGUN = /"msg":"(?:listening|the stores are ready|took a shard)"/;
/** As a supervisor does, so that one that cannot start does not keep a processor busy. */
const RESTART_MS = 500;

export type ChaosProcessOptions = {
  app: 'api' | 'ingest-worker' | 'alert-worker';
  /** Settings; both stores' addresses in them are replaced by those of the proxies. */
  env: Readonly<Record<string, string>>;
  clickhousePort: number;
  redisPort: number;
  /** Where what it wrote is kept, all its lives in one file, up to 100 MB; absent: nowhere. */
  logFile?: string;
};

/** `isStoreAway`: a store was out of reach at that moment, so being started again is the remedy. */
export type Crash = { reason: string; isStoreAway: boolean };

/** One process of an installation, which dies and is started again, with a proxy of its own before each store. */
export class ChaosProcess implements AsyncDisposable {
  readonly app: ChaosProcessOptions['app'];
  readonly redis: ChaosProxy;
  readonly clickhouse: ChaosProxy;
  /** Each life that ended by itself, neither by a signal nor when it was told to. */
  readonly crashes: Crash[] = [];
  readonly #env: Readonly<Record<string, string>>;
  #running: AppProcess | undefined;
  readonly #logFile: string | undefined;
  #loggedChars = 0;
  /** Of the life that runs; the end of the one before may be told only after the next has begun. */
  #life = { isTold: false };
  #failpoint = '';
  #restart: NodeJS.Timeout | undefined;
  #queue: Promise<unknown> = Promise.resolve();

  private constructor(options: ChaosProcessOptions, redis: ChaosProxy, clickhouse: ChaosProxy) {
    this.app = options.app;
    this.#logFile = options.logFile;
    this.redis = redis;
    this.clickhouse = clickhouse;
    this.#env = {
      ...options.env,
      REDIS_URL: redis.redirect(options.env['REDIS_URL'] ?? ''),
      CLICKHOUSE_URL: clickhouse.redirect(options.env['CLICKHOUSE_URL'] ?? ''),
    };
  }

  static async open(options: ChaosProcessOptions): Promise<ChaosProcess> {
    const redis = await ChaosProxy.open(options.redisPort);
    const clickhouse = await ChaosProxy.open(options.clickhousePort);
    return new ChaosProcess(options, redis, clickhouse);
  }

  get isAlive(): boolean {
    return this.#running?.child.exitCode === null && this.#running.child.signalCode === null;
  }

  /** Whether its last end was SIGKILL, its own or ours. */
  get wasKilled(): boolean {
    return this.#running?.child.signalCode === 'SIGKILL';
  }

  /** Whether it has got so far as to do its work. */
  get hasBegun(): boolean {
    return this.isAlive && BEGUN.test(this.#running?.output() ?? '');
  }

  /** Whether it may yet end itself. */
  get isArmed(): boolean {
    return this.isAlive && this.#failpoint !== '';
  }

  /** Starts it unless it runs. @param failpoint where it shall end (packages/runtime/src/failpoint.ts). */
  start(failpoint = ''): void {
    if (this.isAlive) return;
    clearTimeout(this.#restart);
    const life = { isTold: false };
    this.#life = life;
    this.#failpoint = failpoint;
    const running = startApp(this.app, { ...this.#env, FAILPOINT: failpoint });
    this.#running = running;
    running.child.once('close', (code) => {
      this.#keepLog(running.output());
      if (code === null || life.isTold) return;
      this.crashes.push(describeCrash(this.app, code, running.output()));
      this.#restart = setTimeout(() => this.start(failpoint), RESTART_MS);
    });
  }

  #keepLog(text: string): void {
    if (this.#logFile === undefined || this.#loggedChars > LOG_CHARS_MAX) return;
    this.#loggedChars += text.length;
    appendFileSync(this.#logFile, text);
  }

  /** SIGKILL; resolves when it is gone. @returns false when it was gone already. */
  async kill(): Promise<boolean> {
    clearTimeout(this.#restart);
    if (!this.isAlive) return false;
    await this.#running?.kill();
    return true;
  }

  /** SIGTERM, and SIGKILL after half a minute; resolves when it is gone. */
  async stop(): Promise<void> {
    this.#life.isTold = true;
    clearTimeout(this.#restart);
    await this.#running?.stop();
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#running?.child.kill(signal);
  }

  /** Resolves with true when it has ended, with false after that time. */
  async waitForEnd(timeoutMs: number, signal: AbortSignal): Promise<boolean> {
    const child = this.#running?.child;
    if (child === undefined || !this.isAlive) return true;
    const stop = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    await once(child, 'exit', { signal: stop }).catch(() => undefined);
    return !this.isAlive;
  }

  /** Whoever changes this process waits here until those before are done. */
  async exclusively(work: () => Promise<void>): Promise<void> {
    const turn = this.#queue.then(work);
    this.#queue = turn.catch(() => undefined);
    return turn;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.signal('SIGCONT');
    this.#life.isTold = true;
    clearTimeout(this.#restart);
    await this.#running?.kill();
    await Promise.all([this.redis[Symbol.asyncDispose](), this.clickhouse[Symbol.asyncDispose]()]);
  }
}

/** Waits that long, or less when the signal is aborted. @returns whether there is more to do. */
export async function pause(ms: number, signal: AbortSignal): Promise<boolean> {
  await delay(ms, undefined, { signal }).catch(() => undefined);
  return !signal.aborted;
}

function describeCrash(app: string, code: number, output: string): Crash {
  const fatal = output.split('\n').findLast((line) => line.includes('"level":"fatal"')) ?? '';
  const message = /"message":"((?:[^"\\]|\\.)*)"/.exec(fatal)?.[1];
  return {
    reason: `${app} ended with ${code}: ${message ?? output.slice(-OUTPUT_CHARS_SHOWN)}`,
    isStoreAway: fatal.includes('"name":"StoreError"') && fatal.includes('"kind":"unavailable"'),
  };
}
