import type { Preparation } from '@logpond/db/prepare';
import { StoreError } from '@logpond/db/store-error';
import type { Log } from '@logpond/runtime/log';
import { pause } from '@logpond/db/store-retry';

const PAUSE_MS = 500;

/**
 * Prepares the stores as soon as both can be reached, however long that takes, or until the signal is aborted.
 *
 * @throws whatever `prepare` throws other than a StoreError: waiting would not mend it.
 */
export async function prepareWhenReachable(
  prepare: () => Promise<Preparation>,
  signal: AbortSignal,
  log: Log,
): Promise<void> {
  while (!signal.aborted) {
    try {
      reportPreparation(await prepare(), log);
      return;
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof StoreError)) throw error;
      log.warn({ err: error }, 'the stores are not ready yet');
    }
    await pause(PAUSE_MS, signal);
  }
}

/** Says what was done; a Redis that is behind ClickHouse is a warning. */
export function reportPreparation({ applied, shards }: Preparation, log: Log): void {
  log.info({ applied }, 'the stores are ready');
  const changed = shards.filter(({ state }) => state !== 'ready');
  if (changed.some(({ state }) => state === 'draining' || state === 'renewed')) {
    log.warn(
      { shards: changed },
      'this Redis is behind ClickHouse; what it holds is stored before a new epoch begins',
    );
  } else if (changed.length > 0) log.info({ shards: changed }, 'shards began');
}
