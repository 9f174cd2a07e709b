import { addToRollUp, compareRollUp } from '@logpond/db/roll-up';
import { declareCounter } from '@logpond/runtime/metrics';
import type { AuditRecord } from './audit-record.ts';
import type { Shard } from './shard.ts';

/** Comparisons of one healing; what is left then is found by the next audit of these hours. */
const ROUNDS_MAX = 3;

/**
 * Makes the hourly roll-up say what the entries do, for the hours of one plan whose insert was interrupted: the rows
 * and their counts are two parts, and a server that died between them left one. A count that was added twice cannot
 * be taken back and is only told.
 *
 * Why comparing is right although entries keep coming: a project lives in one shard, a shard has one owner, and the
 * owner inserts one thing at a time, in turn. The comparison takes its turn, so nothing is being added to these hours
 * while it reads. An insert that an earlier owner left running is long over: this is at least `AUDIT_AFTER_MS` after
 * the commit.
 *
 * @throws {StoreError} `unavailable`; it may be done again.
 */
export async function healRollUp(shard: Shard, record: AuditRecord): Promise<void> {
  const { hours } = record;
  if (hours === undefined) return;
  const { clickhouse } = shard.deps;
  const scope = { projectIds: Object.keys(record.retention), hours };
  const token = `${shard.cursor.shard}:${record.epoch}:${record.from}-${record.to}`;
  await shard.inserting.hold(async () => {
    for (let round = 1; round <= ROUNDS_MAX; round += 1) {
      const differences = await compareRollUp(clickhouse, scope);
      const short = differences.filter(({ stored, counted }) => stored > counted);
      const deficit = short.reduce((sum, { stored, counted }) => sum + stored - counted, 0);
      if (round === 1) {
        const surplus = differences.reduce(
          (sum, { stored, counted }) => sum + Math.max(0, counted - stored),
          0,
        );
        surplusCounts.inc(surplus);
        if (surplus > 0) shard.log.error({ plan: token, surplus }, 'the hourly roll-up counts entries twice');
      }
      if (deficit === 0) return;
      shard.log.warn({ plan: token, deficit, round }, 'healing the hourly roll-up');
      await addToRollUp(clickhouse, short, `${token}#h${round}`);
      healedCounts.inc(deficit);
    }
  });
}

const healedCounts = declareCounter('logpond_ingest_healed_rollup_entries_total', {
  help: 'Entries that the hourly roll-up had left out and an audit put in',
});
const surplusCounts = declareCounter('logpond_ingest_surplus_rollup_entries_total', {
  help: 'Entries that the hourly roll-up counts and the table does not hold, at each audit of the hour',
});
