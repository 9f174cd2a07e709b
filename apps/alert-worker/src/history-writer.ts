import type { HistoryRow } from '@logpond/db/alert-history';
import { StoreError } from '@logpond/db/store-error';
import { declareCounter } from '@logpond/runtime/metrics';
import { pause, ShardGivenBack } from '@logpond/db/store-retry';
import { retry } from './retry.ts';
import type { AlertShard } from './shard.ts';

const BATCH_MAX = 1_000;
const LOOK_MS = 1_000;
/**
 * An insert that takes longer hangs. It is not cancelled (its connection is given up after 300 s), so that at most
 * five of a shard are under way.
 */
const INSERT_TIMEOUT_MS = 60_000;

/**
 * Brings the rows of a shard's history to ClickHouse, oldest first. While that is away they wait in Redis, and
 * alerts go on. A row that ClickHouse refuses for what it is must not hold up the others: it is dropped, and said.
 *
 * Nothing waits for ClickHouse when the shard is given back: what was under way stays in Redis and is written again,
 * which changes nothing.
 *
 * @throws {ShardGivenBack} when the shard is given back amid a step.
 */
export async function writeHistory(
  shard: AlertShard,
  { insertTimeoutMs = INSERT_TIMEOUT_MS }: { insertTimeoutMs?: number } = {},
): Promise<void> {
  const { windows, signal } = shard;
  while (!signal.aborted) {
    const rows = await retry(shard, 'history', async () => windows.readHistory(BATCH_MAX));
    if (rows.length > 0) {
      const all = rows.map(({ row }) => row);
      await insert(shard, all, insertTimeoutMs);
      await retry(shard, 'history', async () => windows.dropHistory(rows.map(({ text }) => text)));
    }
    if (rows.length < BATCH_MAX) await pause(LOOK_MS, signal);
  }
}

async function insert(shard: AlertShard, rows: readonly HistoryRow[], timeoutMs: number): Promise<void> {
  const isRefused = (error: StoreError): boolean => error.kind === 'invalid_query';
  try {
    await retry(shard, 'insert', async () => insertInTime(shard, rows, timeoutMs), isRefused);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    if (rows.length > 1) {
      const middle = Math.ceil(rows.length / 2);
      await insert(shard, rows.slice(0, middle), timeoutMs);
      await insert(shard, rows.slice(middle), timeoutMs);
      return;
    }
    refusedRows.inc();
    const [row] = rows;
    shard.log.error({ type: row?.type, firingId: row?.firingId }, 'ClickHouse refuses a row of the history');
  }
}

async function insertInTime(
  { deps, signal }: AlertShard,
  rows: readonly HistoryRow[],
  timeoutMs: number,
): Promise<void> {
  const givenUp = Promise.withResolvers<never>();
  const giveBack = (): void => givenUp.reject(new ShardGivenBack('an insert was left while stopping'));
  if (signal.aborted) giveBack();
  signal.addEventListener('abort', giveBack, { once: true });
  const timer = setTimeout(() => {
    const message = `expected an answer to an insert within ${timeoutMs} ms, got none`;
    givenUp.reject(new StoreError('clickhouse', 'unavailable', message));
  }, timeoutMs);
  try {
    await Promise.race([deps.history.insert(rows), givenUp.promise]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', giveBack);
  }
}

const refusedRows = declareCounter('logpond_alert_refused_history_rows_total', {
  help: 'Rows of the alert history that ClickHouse refused',
});
