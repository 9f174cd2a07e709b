import { rm, writeFile } from 'node:fs/promises';
import { ApiError } from '@logpond/schema/api-error';
import type { Accounts } from '@logpond/db/accounts';

/**
 * Keeps every route but health and registration shut until the first account exists (security.md §3).
 *
 * An installation never loses its last account, so "it exists" is remembered for good.
 */
export class SetupGate {
  readonly #accounts: Accounts;
  #isOpen = false;
  #tokenFile: string | undefined;
  #asking: Promise<boolean> | undefined;

  constructor(accounts: Accounts) {
    this.#accounts = accounts;
  }

  /** True without asking once an account has been seen. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Says that an account exists now; the token has no use any more. */
  async open(): Promise<void> {
    this.#isOpen = true;
    await this.removeToken();
  }

  /** Removes the file of the setup token, if this process wrote one. */
  async removeToken(): Promise<void> {
    if (this.#tokenFile !== undefined) await rm(this.#tokenFile, { force: true });
    this.#tokenFile = undefined;
  }

  /** @throws {ApiError} SETUP_REQUIRED. @throws {StoreError} unavailable. */
  async assertOpen(): Promise<void> {
    // One question at a time, however many requests wait for the answer.
    this.#asking ??= this.#accounts.hasUsers().finally(() => (this.#asking = undefined));
    this.#isOpen = (await this.#asking) || this.#isOpen;
    if (this.#isOpen) return;
    throw new ApiError('SETUP_REQUIRED', {
      public:
        'no account exists yet; register the first one with the setup token that the server printed at start',
      retryAfterS: 10,
    });
  }

  /**
   * Issues the setup token while no account exists: printed once, and kept in a file that only its owner reads.
   *
   * @param print where the operator sees it; never the log.
   */
  async announce(file: string, print: (text: string) => void): Promise<void> {
    if (await this.#accounts.hasUsers()) {
      this.#isOpen = true;
      return;
    }
    const token = await this.#issueToken();
    if (token === undefined) return;
    if (await keepToken(file, token)) this.#tokenFile = file;
    const place = this.#tokenFile === undefined ? '' : `, also in ${file}`;
    print(
      `No account exists yet. POST /api/v1/auth/register with this setupToken (valid for 1 h${place}):\n  ${token}\n`,
    );
  }

  /** Another process may have seen the first registration between the question and this call. */
  async #issueToken(): Promise<string | undefined> {
    try {
      return await this.#accounts.issueSetupToken();
    } catch (error) {
      if (error instanceof ApiError && error.code === 'CONFLICT') return undefined;
      throw error;
    }
  }
}

/** Written anew with O_EXCL: in a shared directory nobody can have put a link there first. */
async function keepToken(file: string, token: string): Promise<boolean> {
  try {
    await rm(file, { force: true });
    await writeFile(file, `${token}\n`, { mode: 0o600, flag: 'wx' });
    return true;
  } catch {
    return false;
  }
}
