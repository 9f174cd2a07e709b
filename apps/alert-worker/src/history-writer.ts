import type { HistoryRow } from '@logpond/db/alert-history';
import { StoreError } from '@logpond/db/store-error';
import { declareCounter } from '@logpond/runtime/metrics';
import { pause } from '@logpond/db/store-retry';
import { retry } from './retry.ts';
import type { AlertShard } from './shard.ts';

const BATCH_MAX = 1_000;
const LOOK_MS = 1_000;

/**
 * Brings the rows of a shard's history to ClickHouse, oldest first. While that is away they wait in Redis, and
 * alerts go on. A row that ClickHouse refuses for what it is must not hold up the others: it is dropped, and said.
 *
 * @throws {ShardGivenBack} when a step failed while stopping.
 */
export async function writeHistory(shard: AlertShard): Promise<void> {
  const { windows, signal } = shard;
  while (!signal.aborted) {
    const rows = await retry(shard, 'history', async () => windows.readHistory(BATCH_MAX));
    if (rows.length > 0) {
      await insert(
        shard,
        rows.map(({ row }) => row),
      );
      await retry(shard, 'history', async () => windows.dropHistory(rows.map(({ text }) => text)));
    }
    if (rows.length < BATCH_MAX) await pause(LOOK_MS, signal);
  }
}

async function insert(shard: AlertShard, rows: readonly HistoryRow[]): Promise<void> {
  const { history } = shard.deps;
  const isRefused = (error: StoreError): boolean => error.kind === 'invalid_query';
  try {
    await retry(shard, 'insert', async () => history.insert(rows), isRefused);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    if (rows.length > 1) {
      const middle = Math.ceil(rows.length / 2);
      await insert(shard, rows.slice(0, middle));
      await insert(shard, rows.slice(middle));
      return;
    }
    refusedRows.inc();
    const [row] = rows;
    shard.log.error({ type: row?.type, firingId: row?.firingId }, 'ClickHouse refuses a row of the history');
  }
}

const refusedRows = declareCounter('logpond_alert_refused_history_rows_total', {
  help: 'Rows of the alert history that ClickHouse refused',
});
