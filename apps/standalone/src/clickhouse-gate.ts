import { EngineError } from './clickhouse-error.ts';

const WAITING_MAX = 64;

/**
 * Lets `slotsMax` statements run at once; up to 64 more wait in order, each at most `waitMsMax`.
 * Beyond either bound: EngineError 202 (TOO_MANY_SIMULTANEOUS_QUERIES).
 */
export class ClickHouseGate {
  readonly #slotsMax: number;
  readonly #waitMsMax: number;
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(slotsMax: number, waitMsMax: number) {
    this.#slotsMax = slotsMax;
    this.#waitMsMax = waitMsMax;
  }

  /** Runs `work` in a slot of its own. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    await this.#enter();
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running -= 1;
    }
  }

  async #enter(): Promise<void> {
    if (this.#running < this.#slotsMax) {
      this.#running += 1;
      return;
    }
    if (this.#waiting.length >= WAITING_MAX) throw tooMany(`${WAITING_MAX} others are waiting already`);
    await new Promise<void>((resolve, reject) => {
      const admit = (): void => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#waiting.splice(this.#waiting.indexOf(admit), 1);
        reject(tooMany(`no slot became free within ${this.#waitMsMax} ms`));
      }, this.#waitMsMax);
      this.#waiting.push(admit);
    });
  }
}

function tooMany(detail: string): EngineError {
  return new EngineError(202, 'TOO_MANY_SIMULTANEOUS_QUERIES', `Too many simultaneous queries: ${detail}.`);
}
