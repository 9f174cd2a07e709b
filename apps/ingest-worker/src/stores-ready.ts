import { setTimeout as delay } from 'node:timers/promises';
import { StoreError } from '@logpond/db/store-error';
import type { Log } from '@logpond/runtime/log';

const PAUSE_MS = 500;

/**
 * Prepares the stores as soon as both can be reached, however long that takes, or until the signal is aborted.
 *
 * @throws whatever `prepare` throws other than a StoreError: waiting would not mend it.
 */
export async function prepareWhenReachable(
  prepare: () => Promise<string[]>,
  signal: AbortSignal,
  log: Log,
): Promise<void> {
  while (!signal.aborted) {
    try {
      log.info({ applied: await prepare() }, 'the stores are ready');
      return;
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof StoreError)) throw error;
      log.warn({ err: error }, 'the stores are not ready yet');
    }
    await delay(PAUSE_MS, undefined, { signal }).catch(() => {});
  }
}
