import { ShardGivenBack } from './store-retry.ts';

/**
 * Does side by side what belongs to a shard while it is owned, and waits for all of it. The rest is told to end
 * (`ended`) when the leading part is done, and when a part fails.
 *
 * @throws the first failure, unless it is only that a store failed while stopping.
 */
export async function workTogether(
  ended: AbortController,
  lead: () => Promise<void>,
  beside: readonly (() => Promise<void>)[],
): Promise<void> {
  const run = async (work: () => Promise<void>): Promise<void> => {
    try {
      await work();
    } catch (error) {
      ended.abort();
      if (!(error instanceof ShardGivenBack)) throw error;
    }
  };
  const outcomes = await Promise.allSettled([run(lead).finally(() => ended.abort()), ...beside.map(run)]);
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
}
