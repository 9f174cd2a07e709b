import type { AlertRuleDocument, RuleChange } from '@logpond/db/rule-change';
import { declareCounter } from '@logpond/runtime/metrics';
import { pause } from '@logpond/db/store-retry';
import { retry } from './retry.ts';
import type { RuleSet } from './rule-set.ts';
import type { AlertShard } from './shard.ts';

/**
 * Compares the rules of the control plane with those of the shard, again and again, and sends once more what the
 * shard has not seen: an API that was killed between its transaction and the stream leaves such changes.
 *
 * @throws {ShardGivenBack} when a step failed while stopping.
 */
export async function pollRules(shard: AlertShard): Promise<void> {
  const { deps, cursor, progress, rules, signal } = shard;
  while (!signal.aborted) {
    await pause(deps.rulePollMs, signal);
    // Far behind, what seems to be missing lies in the stream.
    if (signal.aborted || !progress.isAtEnd) continue;
    // Before the control plane is asked: a rule that is known here and not there was deleted, and not just made.
    const known = rules.versions();
    const kept = await retry(shard, 'rules', async () => deps.rules.listOfShard(cursor.shard));
    for (const change of findUnseen(rules, known, kept)) {
      await retry(shard, 'rules', async () => deps.ruleStream.publish(change));
      resentChanges.inc();
      const ruleId = change.op === 'put' ? change.rule.id : change.ruleId;
      shard.log.warn({ ruleId, op: change.op }, 'a change of a rule had not arrived and was sent again');
    }
  }
}

/** @param known what `rules` held before `kept` was read in the control plane. */
export function findUnseen(
  rules: RuleSet,
  known: ReturnType<RuleSet['versions']>,
  kept: readonly AlertRuleDocument[],
): RuleChange[] {
  const changes: RuleChange[] = [];
  for (const rule of kept) if (!rules.hasSeen(rule.id, rule.version)) changes.push({ op: 'put', rule });
  const ids = new Set(kept.map(({ id }) => id));
  for (const [ruleId, { version, projectId }] of known) {
    if (!ids.has(ruleId)) changes.push({ op: 'delete', ruleId, projectId, version });
  }
  return changes;
}

const resentChanges = declareCounter('logpond_alert_resent_changes_total', {
  help: 'Changes of rules that had not arrived in the stream and were sent again',
});
