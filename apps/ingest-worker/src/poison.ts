import { StoreError } from '@logpond/db/store-error';
import { buryRows } from './burial.ts';
import type { RefusedRows } from './burial.ts';
import { complete } from './complete.ts';
import type { PlanRows, Window } from './plan-rows.ts';
import { RefusalCounter } from './refusals.ts';
import { ShardGivenBack } from '@logpond/db/store-retry';
import { retry } from './retry.ts';
import type { Shard } from './shard.ts';

/** So many single rows are buried of a plan, then as many windows of each of these sizes, and then whatever is left. */
const WINDOWS_MAX = 64;
const WINDOW_ROWS = [1, 100, 10_000] as const;
/** An insert was too large for the server's memory so often. */
const TOO_LARGE_MAX = 3;
/** An insert of fewer rows is not cut for the server's memory: it waits until there is some. */
const MEMORY_ROWS_MIN = 1_000;

/**
 * Stores a plan that is refused as a whole: by halves of its offsets, each under a token of its own and counted
 * before it is sent, down to the rows that are refused alone. Those go to the dead letters, everything beside them
 * is stored. A row that is buried was refused with every window around it. What was buried is recorded beside the plan
 * with its letter, so after a crash the next owner counts what was stored, buries what was not yet, and no letter
 * comes twice.
 *
 * Bound: at most `3 × 64` windows are buried plus one for each halving (18 of 250,000 rows), so a plan that is bad
 * throughout ends after a few thousand requests.
 *
 * @param memory `mayHalveForMemory`: every insert of this plan so far was made by this owner, and answered.
 * @returns entries that were buried.
 * @throws {ShardGivenBack} when the shard is to be given back.
 */
export async function storeByHalves(
  shard: Shard,
  rows: PlanRows,
  memory: { mayHalveForMemory: boolean },
): Promise<number> {
  shard.log.warn({ plan: rows.token }, 'a plan is refused as a whole; storing it by halves');
  const refused: RefusedRows[] = [];
  const windows: Window[] = [{ from: rows.from, to: rows.to }];
  for (let window = windows.pop(); window !== undefined; window = windows.pop()) {
    if (shard.signal.aborted) throw new ShardGivenBack('stopping amid a refused plan');
    const isLast = window.to - window.from <= rowsToBury(refused.length);
    const refusal = await tryWindow(shard, rows, window, memory);
    if (refusal === undefined) continue;
    if (isLast && refusal.kind === 'invalid_query') {
      refused.push({ ...window, refusal, stored: await listStored(shard, rows, window) });
      continue;
    }
    const middle = window.from + Math.ceil((window.to - window.from) / 2);
    windows.push({ from: middle, to: window.to }, { from: window.from, to: middle });
  }
  return buryRows(shard, rows, refused);
}

/** A window of so many rows is buried whole. */
function rowsToBury(buried: number): number {
  return WINDOW_ROWS[Math.floor(buried / WINDOWS_MAX)] ?? Infinity;
}

/** Stores one window. Gives back why it cannot be; undefined when it is stored. */
async function tryWindow(
  shard: Shard,
  rows: PlanRows,
  window: Window,
  { mayHalveForMemory }: { mayHalveForMemory: boolean },
): Promise<StoreError | undefined> {
  const token = `${rows.token}#s${window.from}-${window.to}`;
  const isLarge = window.to - window.from > MEMORY_ROWS_MIN;
  const refusals = new RefusalCounter({ mayHalveForMemory: mayHalveForMemory && isLarge });
  const isHopeless = (error: StoreError): boolean => {
    const times = refusals.count(error);
    return error.kind === 'invalid_query' || times >= TOO_LARGE_MAX;
  };
  const store = async (): Promise<unknown> => complete(shard, rows, { window, token, mark: 'r' });
  try {
    await retry(shard, 'insert', store, isHopeless);
    return undefined;
  } catch (error) {
    if (error instanceof StoreError) return error;
    throw error;
  }
}

/** What of a refused window is there all the same, from an attempt that was cut otherwise. */
async function listStored(shard: Shard, rows: PlanRows, window: Window): Promise<ReadonlySet<number>> {
  return retry(shard, 'verify', async () => shard.deps.store.listPlanOffsets(rows.rangeOf(window)));
}
