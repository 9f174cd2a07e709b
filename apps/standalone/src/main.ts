import { ConfigError, EXIT_CONFIG } from '@logpond/runtime/env';
import { readLauncherConfig } from './config.ts';
import { LauncherError } from './data-dir.ts';
import { runLauncher } from './launcher.ts';

/** A terminal, npm and a wrapper may all pass one Ctrl-C on: only a signal after this long is a second one. */
const SAME_SIGNAL_MS = 1_000;

const stop = new AbortController();
const kill = new AbortController();
let stoppingSince = 0;

for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(name, () => {
    if (!stop.signal.aborted) {
      stoppingSince = Date.now();
      stop.abort();
    } else if (Date.now() - stoppingSince > SAME_SIGNAL_MS && !kill.signal.aborted) {
      say('killing what still runs');
      kill.abort();
    }
  });
}
// The terminal may go first; stopping in order must not fail on it.
process.stdout.on('error', () => {});
process.stderr.on('error', () => {});

try {
  const options = { signal: stop.signal, killSignal: kill.signal, say };
  process.exitCode = await runLauncher(readLauncherConfig(), options);
} catch (error) {
  process.exitCode = error instanceof ConfigError ? EXIT_CONFIG : 1;
  const isExpected = error instanceof ConfigError || error instanceof LauncherError;
  say(isExpected ? error.message : `cannot go on: ${error instanceof Error ? error.stack : String(error)}`);
}
process.exit();

function say(line: string): void {
  process.stderr.write(`logpond: ${line}\n`);
}
