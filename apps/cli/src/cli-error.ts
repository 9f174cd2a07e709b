/** Exit codes of the command; they are part of its interface and listed in `logpond --help`. */
export const EXIT = { ok: 0, incomplete: 1, usage: 2, unreachable: 3 } as const;

/** A failure with one sentence for the person at the terminal and the exit code that goes with it. */
export class CliError extends Error {
  readonly exitCode: number;

  constructor(exitCode: number, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'CliError';
    this.exitCode = exitCode;
  }
}
