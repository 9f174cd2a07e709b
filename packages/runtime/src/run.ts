import { ConfigError, EXIT_CONFIG } from './env.ts';
import { createLog } from './log.ts';
import type { Log } from './log.ts';

/** How long a process may take to finish what it has in hand after the first signal, in milliseconds. */
const SHUTDOWN_DEADLINE_MS = 25_000;

/** What a process is given: what it opens goes on `stack` and is closed in reverse order. */
export type ProcessContext = {
  /** Aborted by the first SIGTERM or SIGINT, and when `main` fails. */
  signal: AbortSignal;
  stack: AsyncDisposableStack;
  log: Log;
  /** Ends the process with this failure, so that it is restarted whole: for work that nobody awaits. */
  fail: (error: unknown) => void;
};

/**
 * The life of a process: `main` opens what it needs and returns or waits; a signal ends it.
 *
 * Exit codes: 0 after a signal or when `main` is done, 1 after a failure or when the deadline passed,
 * 78 when the configuration cannot be used (a supervisor should not restart then).
 */
export async function runProcess(
  name: string,
  main: (context: ProcessContext) => Promise<void>,
): Promise<void> {
  const log = createLog(name, 'info');
  const controller = new AbortController();
  const failure = Promise.withResolvers<never>();
  // Nobody may be waiting yet when it fails.
  failure.promise.catch(() => {});
  const fail = (error: unknown): void => {
    // Only the first failure is reported at the end; one during the stop would leave no trace.
    if (controller.signal.aborted) log.error({ err: error }, 'failed while stopping');
    failure.reject(error);
  };
  process.on('uncaughtException', fail);
  process.on('unhandledRejection', fail);
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    // `on`, not `once`: npm and a terminal both pass one Ctrl-C on, and the second must not cut the stop short.
    process.on(signal, () => {
      if (controller.signal.aborted) return;
      log.info({ signal }, 'stopping');
      controller.abort();
    });
  }
  const stack = new AsyncDisposableStack();
  const stopped = new Promise<void>((resolve) => {
    controller.signal.addEventListener('abort', () => resolve(), { once: true });
  });
  try {
    // A start may wait long for a store; a signal ends that too, and what is open by then is closed.
    await Promise.race([main({ signal: controller.signal, stack, log, fail }), failure.promise, stopped]);
    await Promise.race([stopped, failure.promise]);
  } catch (error) {
    process.exitCode = reportFailure(log, error);
  }
  controller.abort();
  await closeInTime(stack, log);
  process.exit();
}

function reportFailure(log: Log, error: unknown): number {
  if (error instanceof ConfigError) {
    process.stderr.write(`${error.message}\n`);
    return EXIT_CONFIG;
  }
  log.fatal({ err: error }, 'the process failed');
  return 1;
}

async function closeInTime(stack: AsyncDisposableStack, log: Log): Promise<void> {
  const deadline = setTimeout(() => {
    log.error({ deadlineMs: SHUTDOWN_DEADLINE_MS }, 'stopping took too long');
    process.exit(1);
  }, SHUTDOWN_DEADLINE_MS);
  try {
    await stack.disposeAsync();
    log.info('stopped');
  } catch (error) {
    log.error({ err: error }, 'closing failed');
    process.exitCode = 1;
  }
  clearTimeout(deadline);
}
