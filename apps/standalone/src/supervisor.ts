import { join } from 'node:path';
import type { ChildProcess } from 'node:child_process';
import { EXIT_CONFIG } from '@logpond/runtime/env';
import { ChildLog } from './child-log.ts';
import type { DataDir } from './data-dir.ts';
import { inheritEnvironment } from '@logpond/runtime/env';
import { HEALTHY_LIFE_MS, restartDelayMs } from './restart-delay.ts';
import { spawnTied, stopChild } from './store-process.ts';
import type { Command } from './store-process.ts';

/** A process to keep alive. */
export type ChildSpec = Command & {
  name: string;
  env: Record<string, string>;
  /** Parts of its command line, by which it is known again. */
  marks: readonly string[];
  /** How long it may take to stop before it is killed. */
  stopMsMax: number;
};

export type SupervisorOptions = {
  dataDir: DataDir;
  /** One line for the person at the terminal. */
  say: (line: string) => void;
  /** A child refused its configuration: starting it again cannot help. */
  onRefused: (name: string, message: string) => void;
};

const ROTATE_MS = 5_000;

/** Keeps processes alive: whoever ends is started again, with growing pauses when it keeps ending at once. */
export class Supervisor implements Disposable {
  readonly #options: SupervisorOptions;
  readonly #children = new Map<string, SupervisedChild>();
  readonly #timer: NodeJS.Timeout;

  constructor(options: SupervisorOptions) {
    this.#options = options;
    this.#timer = setInterval(() => {
      for (const child of this.#children.values()) child.log.rotate();
    }, ROTATE_MS).unref();
  }

  start(spec: ChildSpec): void {
    const child = new SupervisedChild(spec, this.#options);
    this.#children.set(spec.name, child);
    child.start();
  }

  /** False between two lives too. */
  isRunning(name: string): boolean {
    return this.#children.get(name)?.isRunning ?? false;
  }

  /** Ends these processes, all at once, and waits until they are gone. Unknown names are ignored. */
  async stop(names: readonly string[]): Promise<void> {
    const children = names.map((name) => this.#children.get(name)).filter((child) => child !== undefined);
    await Promise.all(children.map((child) => child.stop()));
  }

  /** Kills whatever still runs, without waiting. */
  killAll(): void {
    for (const child of this.#children.values()) child.kill();
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    for (const child of this.#children.values()) child.log[Symbol.dispose]();
  }
}

class SupervisedChild {
  readonly log: ChildLog;
  readonly #spec: ChildSpec;
  readonly #options: SupervisorOptions;
  #child: ChildProcess | undefined;
  #timer: NodeJS.Timeout | undefined;
  #quickDeaths = 0;
  #isStopping = false;

  constructor(spec: ChildSpec, options: SupervisorOptions) {
    this.#spec = spec;
    this.#options = options;
    this.log = new ChildLog(join(options.dataDir.path, 'logs', `${spec.name}.log`));
  }

  get isRunning(): boolean {
    return this.#child !== undefined;
  }

  start(): void {
    const { name, env, marks } = this.#spec;
    const startedAt = performance.now();
    const logPosition = this.log.size;
    const child = spawnTied(this.#spec, {
      env: inheritEnvironment(env),
      stdio: ['ignore', this.log.fd, this.log.fd],
    });
    this.#child = child;
    if (child.pid !== undefined) this.#options.dataDir.recordChild(name, child.pid, marks);
    const end = (reason: string, code: number | null): void => {
      if (this.#child !== child) return;
      this.#child = undefined;
      this.#options.dataDir.forgetChild(name);
      if (this.#isStopping) return;
      if (code === EXIT_CONFIG) this.#options.onRefused(name, this.log.readFrom(logPosition));
      else this.#startAgain(reason, performance.now() - startedAt);
    };
    // A program that cannot be run at all has an error and no exit.
    child.once('error', (error) => end(error.message, null));
    child.once('exit', (code, signal) => end(signal ?? `exit code ${code}`, code));
  }

  #startAgain(reason: string, livedMs: number): void {
    const { name } = this.#spec;
    this.#quickDeaths = livedMs < HEALTHY_LIFE_MS ? this.#quickDeaths + 1 : 1;
    const delayMs = restartDelayMs(this.#quickDeaths);
    const next =
      this.#quickDeaths > 3
        ? `${this.#quickDeaths} times in a row; next try in ${delayMs / 1000} s; see ${this.log.path}`
        : 'starting it again';
    this.#options.say(`${name} ended (${reason}), ${next}`);
    this.#timer = setTimeout(() => this.start(), delayMs);
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#timer);
    const child = this.#child;
    if (!child) return;
    const isInTime = await stopChild(child, this.#spec.stopMsMax);
    if (!isInTime)
      this.#options.say(
        `${this.#spec.name} did not stop within ${this.#spec.stopMsMax / 1000} s and was killed`,
      );
  }

  kill(): void {
    this.#isStopping = true;
    clearTimeout(this.#timer);
    this.#child?.kill('SIGKILL');
  }
}
