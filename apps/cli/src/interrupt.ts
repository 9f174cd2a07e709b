const SAME_SIGNAL_MS = 500;

/**
 * Ctrl-C in two steps: the first aborts the returned signal, the second ends the process with 130.
 * npx, its shell and the wrapper forward what the terminal has already sent to all of them, so signals
 * within half a second of the first are that one.
 */
export function watchInterrupt(): AbortSignal {
  const controller = new AbortController();
  let firstMs: number | undefined;
  const onSignal = (): void => {
    const nowMs = performance.now();
    if (firstMs === undefined) {
      firstMs = nowMs;
      controller.abort();
    } else if (nowMs - firstMs > SAME_SIGNAL_MS) {
      process.exit(130);
    }
  };
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  return controller.signal;
}
