import { StoreError } from '@logpond/db/store-error';
import { complete, insertRows } from './complete.ts';
import type { PlanRows } from './plan-rows.ts';
import { storeByHalves } from './poison.ts';
import { RefusalCounter } from './refusals.ts';
import { retry } from './retry.ts';
import type { Shard } from './shard.ts';

/** So many identical refusals mean that the bytes are at fault. */
const REFUSALS_MAX = 3;

/** How a plan was stored. `isUncertain`: more than one insert may have reached the server, so the roll-up is compared later. */
export type StoredPlan = {
  attempts: number;
  isUncertain: boolean;
  /** Entries that were put in beyond what an earlier insert had stored. */
  repaired: number;
  /** Entries that were refused and buried. */
  buried: number;
};

/**
 * Gets one plan's rows into ClickHouse, exactly once.
 *
 * A fresh plan is one INSERT and nothing else. As soon as its outcome is unknown (an attempt failed, or somebody else
 * may have made one), what is stored is counted first. That repeats for ever while ClickHouse is out of reach; an
 * insert that was refused three times for the same reason is stored by halves instead, down to the rows at fault
 * (poison.ts), and so is one that three times was too large for the server's memory. The latter only while the server
 * has answered every attempt: one that it has not may still be running, and halves have other tokens than the whole.
 *
 * @param isUncertain the plan was inherited, or this Redis may be behind ClickHouse: an insert of it may be running.
 * @throws {ShardGivenBack} when the shard is to be given back; the plan stays for its next owner.
 */
export async function storePlan(shard: Shard, rows: PlanRows, isUncertain: boolean): Promise<StoredPlan> {
  const outcome: StoredPlan = { attempts: 0, isUncertain, repaired: 0, buried: 0 };
  const refusals = new RefusalCounter({ mayHalveForMemory: !isUncertain });
  const attempt = async (): Promise<void> => {
    outcome.attempts += 1;
    if (outcome.isUncertain) {
      outcome.repaired = await complete(shard, rows, { window: rows, token: rows.token, mark: 'r' });
      return;
    }
    const native = rows.encode();
    if (native.rows === 0) return;
    // What becomes of this one is known only when it succeeds.
    outcome.isUncertain = true;
    await insertRows(shard, native, rows.token);
    outcome.isUncertain = false;
  };
  try {
    await retry(shard, 'insert', attempt, (error) => refusals.count(error) >= REFUSALS_MAX);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    outcome.buried = await storeByHalves(shard, rows, refusals);
  }
  return outcome;
}
