import type { RedisStore } from './connect.ts';
import { RedisScript } from './redis-script.ts';
import type { RuleChange } from './rule-change.ts';
import { shardKeys, shardOf } from './shard-map.ts';
import { StoreError } from './store-error.ts';

const controlScript = new RedisScript('log-stream.lua/control.lua');

/** Changes of one shard that the alert worker has not read yet. */
const CHANGES_WAITING_MAX = 10_000;
/** What changes may take in one shard's stream. */
const CHANGES_BYTES_MAX = 16 * 1024 ** 2;
/** Above it those that were read go before their time (as long as a block may be replayed), oldest first. */
const CHANGES_BYTES_KEPT = 4 * 1024 ** 2;

/**
 * Carries changes of rules to the alert worker in the stream of the entries, so that each entry meets the rules that
 * were in force when it was admitted.
 */
export class RuleStream {
  readonly #redis: RedisStore;

  constructor(redis: RedisStore) {
    this.#redis = redis;
  }

  /**
   * Every entry admitted from now on meets the change, none admitted before does. Sending one again is harmless.
   *
   * @throws {StoreError} `unavailable`: unknown outcome, or 10,000 changes or 16 MB of them wait already.
   */
  async publish(change: RuleChange): Promise<void> {
    const { client, prefix, shards, waitReplicas } = this.#redis;
    const projectId = change.op === 'put' ? change.rule.projectId : change.projectId;
    const { log, state } = shardKeys(prefix, shardOf(projectId, shards));
    const bounds = [CHANGES_WAITING_MAX, CHANGES_BYTES_MAX, CHANGES_BYTES_KEPT];
    const args = [JSON.stringify(change), ...bounds, Date.now()];
    const answer = await controlScript.runReplicated(client, [log, state], args, waitReplicas);
    const [kind, reason] = Array.isArray(answer) ? answer.map(String) : [];
    if (kind === 'put') return;
    const bound =
      reason === 'bytes' ? `at most ${CHANGES_BYTES_MAX} bytes` : `at most ${CHANGES_WAITING_MAX} changes`;
    throw new StoreError(
      'redis',
      'unavailable',
      kind === 'full'
        ? `expected ${bound} of rules to wait for the alert worker, got one more`
        : 'the shard has no epoch yet: it was not compared with ClickHouse',
    );
  }
}
