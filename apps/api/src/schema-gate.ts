import { setTimeout as delay } from 'node:timers/promises';
import { StoreError } from '@logpond/db/store-error';
import type { Log } from '@logpond/runtime/log';

const RETRY_MS = 1_000;
/** An ingest worker brings the schema up to date when it starts; longer than this it is not coming. */
const OLD_SCHEMA_GRACE_MS = 60_000;

/**
 * Whether ClickHouse has the schema that this release needs. Until then the process is not ready, but it
 * takes batches: for those Redis is enough.
 */
export class SchemaGate {
  #hasPassed = false;

  get hasPassed(): boolean {
    return this.#hasPassed;
  }

  /**
   * Asks until the schema is there. An unreachable ClickHouse is waited for without end.
   *
   * @param check resolves when the schema is recent enough.
   * @throws {Error} of `check`, when ClickHouse has had too old a schema for 60 s.
   */
  async wait(check: () => Promise<void>, signal: AbortSignal, log: Log): Promise<void> {
    let oldSinceMs: number | undefined;
    let lastText = '';
    while (!signal.aborted) {
      try {
        await check();
        this.#hasPassed = true;
        return;
      } catch (error) {
        const isOld = !(error instanceof StoreError);
        oldSinceMs = isOld ? (oldSinceMs ?? performance.now()) : undefined;
        if (oldSinceMs !== undefined && performance.now() - oldSinceMs > OLD_SCHEMA_GRACE_MS) throw error;
        const text = error instanceof Error ? error.message : String(error);
        if (text !== lastText) log.info({ reason: text }, 'waiting for the schema of ClickHouse');
        lastText = text;
      }
      await delay(RETRY_MS, undefined, { signal }).catch(() => {});
    }
  }
}
