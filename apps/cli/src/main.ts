import { CommanderError } from 'commander';
import { CliError, EXIT } from './cli-error.ts';
import { createProgram } from './program.ts';

// `logpond search … | head` closes the pipe: that is the end, not an error.
process.stdout.on('error', (error: NodeJS.ErrnoException) =>
  process.exit(error.code === 'EPIPE' ? EXIT.ok : EXIT.incomplete),
);

/** Ends the process with what it wrote delivered: a pipe may still hold the last lines back. */
async function finish(code: number): Promise<never> {
  for (const output of [process.stdout, process.stderr]) {
    await new Promise<void>((resolve) => output.write('', () => resolve()));
  }
  // Standard input and kept connections would hold the process.
  process.exit(code);
}

try {
  process.exitCode = EXIT.ok;
  await createProgram().parseAsync(process.argv);
  await finish(Number(process.exitCode));
} catch (error) {
  if (error instanceof CommanderError) await finish(error.exitCode === 0 ? EXIT.ok : EXIT.usage);
  // Ctrl-C while a request was under way.
  if (error instanceof Error && error.name === 'AbortError') await finish(130);
  if (!(error instanceof CliError)) throw error;
  process.stderr.write(`logpond: ${error.message}\n`);
  await finish(error.exitCode);
}
