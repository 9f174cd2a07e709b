import { CommanderError } from 'commander';
import { CliError, EXIT } from './cli-error.ts';
import { createProgram } from './program.ts';

// `logpond search … | head` closes the pipe: that is the end, not an error.
process.stdout.on('error', (error: NodeJS.ErrnoException) =>
  process.exit(error.code === 'EPIPE' ? EXIT.ok : EXIT.incomplete),
);

try {
  process.exitCode = EXIT.ok;
  await createProgram().parseAsync(process.argv);
  // Standard input and kept connections would hold the process; everything is written by now.
  process.exit();
} catch (error) {
  if (error instanceof CommanderError) process.exit(error.exitCode === 0 ? EXIT.ok : EXIT.usage);
  // Ctrl-C while a request was under way.
  if (error instanceof Error && error.name === 'AbortError') process.exit(130);
  if (!(error instanceof CliError)) throw error;
  process.stderr.write(`logpond: ${error.message}\n`);
  process.exit(error.exitCode);
}
