/** How long a check may take before it counts as failed. */
const CHECK_TIMEOUT_MS = 1_000;

export type CheckName = 'redis' | 'clickhouse';
export type CheckOutcome = 'ok' | 'unavailable' | 'timeout' | 'schema';
export type ReadinessReport = {
  status: 'ok' | 'unavailable' | 'stopping';
  checks: Record<CheckName, CheckOutcome>;
};

type Check = () => Promise<CheckOutcome>;

/** Whether this process should be sent requests. */
export class Readiness {
  readonly #checks: Record<CheckName, Check>;
  readonly #running = new Map<CheckName, Promise<CheckOutcome>>();
  #isStopping = false;

  constructor(checks: Record<CheckName, Check>) {
    this.#checks = checks;
  }

  /** The first step of a shutdown: balancers stop sending before the listener closes. */
  stop(): void {
    this.#isStopping = true;
  }

  async report(): Promise<ReadinessReport> {
    const [redis, clickhouse] = await Promise.all([this.#run('redis'), this.#run('clickhouse')]);
    const isOk = redis === 'ok' && clickhouse === 'ok';
    return {
      status: this.#isStopping ? 'stopping' : isOk ? 'ok' : 'unavailable',
      checks: { redis, clickhouse },
    };
  }

  /** One check at a time per store: probes that come while one hangs share it, and never pile up. */
  async #run(name: CheckName): Promise<CheckOutcome> {
    let running = this.#running.get(name);
    if (running === undefined) {
      running = this.#checks[name]()
        .catch((): CheckOutcome => 'unavailable')
        .finally(() => this.#running.delete(name));
      this.#running.set(name, running);
    }
    const timeout = Promise.withResolvers<CheckOutcome>();
    const timer = setTimeout(() => timeout.resolve('timeout'), CHECK_TIMEOUT_MS);
    return Promise.race([running, timeout.promise]).finally(() => clearTimeout(timer));
  }
}
