import type { Redis } from 'ioredis';
import { shardKeys } from '@logpond/db/shard-map';
import { KEY_PREFIX } from './rig-state.ts';
import type { JudgedRule, Spell } from './alert-crossings.ts';

const PAGE_ENTRIES = 500;

/** A rule as a change in the stream carries it. */
type StreamedRule = JudgedRule & {
  version: number;
  generation: number;
  enabled: boolean;
  name: string;
  notifications: { type: string; config: { recipients?: string[]; url?: string } }[];
};

type Change = { op: 'put'; rule: StreamedRule } | { op: 'delete'; ruleId: string; version: number };

/** What the stream says of one rule. */
export type RuleLife = {
  /** As it was last. */
  rule: StreamedRule;
  spells: Spell[];
};

/**
 * Reads all changes of rules that lie in the streams, past the product's code, and says between which offsets each
 * rule counted. Only sound while nothing was trimmed.
 */
export async function readLives(redis: Redis, shards: number): Promise<Map<string, RuleLife>> {
  const lives = new Map<string, RuleLife>();
  for (let shard = 0; shard < shards; shard += 1) {
    const versions = new Map<string, number>();
    for await (const { offset, change } of readChanges(redis, shard)) {
      const ruleId = change.op === 'put' ? change.rule.id : change.ruleId;
      const version = change.op === 'put' ? change.rule.version : change.version;
      // The slow poll may send again what the shard has seen.
      const known = versions.get(ruleId) ?? 0;
      if (change.op === 'put' ? version <= known : version < known) continue;
      versions.set(ruleId, version);
      applyChange(lives, change, offset);
    }
  }
  return lives;
}

function applyChange(lives: Map<string, RuleLife>, change: Change, offset: number): void {
  const life = lives.get(change.op === 'put' ? change.rule.id : change.ruleId);
  const open = life?.spells.find(({ upTo }) => upTo === null);
  if (change.op === 'delete') {
    if (open !== undefined) open.upTo = offset;
    return;
  }
  const { rule } = change;
  const goesOn = open !== undefined && rule.enabled && life?.rule.generation === rule.generation;
  if (open !== undefined && !goesOn) open.upTo = offset;
  const spells = life?.spells ?? [];
  if (rule.enabled && !goesOn) spells.push({ rule, after: offset, upTo: null });
  lives.set(rule.id, { rule, spells });
}

async function* readChanges(redis: Redis, shard: number): AsyncGenerator<{ offset: number; change: Change }> {
  const { log } = shardKeys(KEY_PREFIX, shard);
  let start = '-';
  for (;;) {
    // Blocks are bytes: read as text they are garbage, but only the other entries are looked at.
    const entries = await redis.xrange(log, start, '+', 'COUNT', PAGE_ENTRIES);
    for (const [id, [name, text]] of entries) {
      const [offset = '', number] = id.split('-');
      if (number === '0') continue;
      if (name !== 'rules' || text === undefined)
        throw new Error(`expected a change of rules at ${id}, got ${name}`);
      yield { offset: Number(offset), change: JSON.parse(text) as Change };
    }
    if (entries.length < PAGE_ENTRIES) return;
    start = `(${entries.at(-1)?.[0] ?? ''}`;
  }
}
