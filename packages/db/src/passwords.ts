import { argon2id, hash, needsRehash, verify } from 'argon2';
import { PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN } from '@logpond/schema/account';
import { ApiError } from '@logpond/schema/api-error';

/** OWASP's second choice for argon2id; 21–25 ms CPU and 19 MB a hash. The salt is 16 random bytes. */
const PARAMETERS = {
  type: argon2id,
  memoryCost: 19_456,
  timeCost: 2,
  parallelism: 1,
  hashLength: 32,
} as const;

/** Made with these parameters from 256 random bits that nobody kept: what unknown accounts are verified against. */
const NOBODY =
  '$argon2id$v=19$m=19456,p=1,t=2$9rY+N7JwnszwNU7hY6TAyQ$56bCk6DnFukTpB2ytdnKLPi6BSciSDnVXJ8FWPUWCE4';

const HASHES_AT_ONCE = 2;
const QUEUE_MAX = 32;
const RETRY_AFTER_S = 2;

/**
 * Refuses a password that is too short or too long, in Unicode code points after NFC.
 *
 * @throws {ApiError} `VALIDATION_ERROR` with the path `password`.
 */
export function checkNewPassword(password: string): void {
  const length = Array.from(password.normalize('NFC')).length;
  if (length >= PASSWORD_LENGTH_MIN && length <= PASSWORD_LENGTH_MAX) return;
  const message = `expected ${PASSWORD_LENGTH_MIN} to ${PASSWORD_LENGTH_MAX} characters, got ${length}`;
  throw new ApiError('VALIDATION_ERROR', {
    public: `password: ${message}`,
    details: [{ path: 'password', message }],
  });
}

/**
 * Hashes and verifies passwords, two at once in the process and at most 32 waiting: a storm of logins must not
 * starve the thread pool that inflates batches.
 */
export class PasswordHasher {
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  /**
   * A PHC string of the password in NFC.
   *
   * @throws {ApiError} `RATE_LIMITED` when the queue is full.
   */
  async hash(password: string): Promise<string> {
    return this.#inTurn(() => hash(password.normalize('NFC'), PARAMETERS));
  }

  /**
   * Whether the password is the one of this PHC string. Without a PHC string it is false after the same work, so
   * that the time does not tell whether an account exists.
   *
   * @throws {ApiError} `RATE_LIMITED` when the queue is full.
   */
  async verify(phc: string | undefined, password: string): Promise<boolean> {
    const isTooLong = password.length > PASSWORD_LENGTH_MAX * 4;
    const candidate = isTooLong ? '' : password.normalize('NFC');
    return this.#inTurn(async () => {
      const isRight = await verify(phc ?? NOBODY, candidate);
      return isRight && phc !== undefined && !isTooLong;
    });
  }

  /** Whether the PHC string was made with other parameters than today's. */
  isOutdated(phc: string): boolean {
    return needsRehash(phc, PARAMETERS);
  }

  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running < HASHES_AT_ONCE) this.#running += 1;
    else await this.#wait();
    try {
      return await work();
    } finally {
      // The turn is handed on, so the number of running ones falls only when nobody waits.
      const next = this.#waiting.shift();
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }

  async #wait(): Promise<void> {
    if (this.#waiting.length >= QUEUE_MAX) {
      throw new ApiError('RATE_LIMITED', {
        public: 'too many logins at the moment; try again in 2 seconds',
        internal: 'the queue of password hashes is full',
        retryAfterS: RETRY_AFTER_S,
      });
    }
    const turn = Promise.withResolvers<void>();
    this.#waiting.push(turn.resolve);
    await turn.promise;
  }
}
