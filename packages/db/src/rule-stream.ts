import type { RedisStore } from './connect.ts';
import { RedisScript } from './redis-script.ts';
import type { RuleChange } from './rule-change.ts';
import { shardKeys, shardOf } from './shard-map.ts';
import { StoreError } from './store-error.ts';

const controlScript = new RedisScript('log-stream.lua/control.lua');

/** Changes of one shard that the alert worker has not read yet. */
const CHANGES_WAITING_MAX = 10_000;

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
   * @throws {StoreError} `unavailable`: unknown outcome, or 10,000 changes wait already.
   */
  async publish(change: RuleChange): Promise<void> {
    const { client, prefix, shards, waitReplicas } = this.#redis;
    const projectId = change.op === 'put' ? change.rule.projectId : change.projectId;
    const { log, state } = shardKeys(prefix, shardOf(projectId, shards));
    const args = [JSON.stringify(change), CHANGES_WAITING_MAX];
    const answer = await controlScript.runReplicated(client, [log, state], args, waitReplicas);
    const [kind] = Array.isArray(answer) ? answer.map(String) : [];
    if (kind === 'put') return;
    throw new StoreError(
      'redis',
      'unavailable',
      kind === 'full'
        ? `expected fewer than ${CHANGES_WAITING_MAX} changes of rules to wait for the alert worker`
        : 'the shard has no epoch yet: it was not compared with ClickHouse',
    );
  }
}
