import type { AlertRuleDraft } from '@logpond/schema/alert-rule';
import type { Versioned } from './control-store.ts';

/** A rule as it is kept. Its state and counters are not here: they live in the shard's slot (alert-windows.ts). */
export type AlertRuleDocument = Versioned &
  AlertRuleDraft & {
    id: string;
    projectId: string;
    /** The version at which its counters last began anew: when what it counts, or whether it does, changed. */
    generation: number;
    createdAt: string;
    updatedAt: string;
  };

/** What a shard's stream says of the rules of its projects: from this place on they are so. */
export type RuleChange =
  | { op: 'put'; rule: AlertRuleDocument }
  | { op: 'delete'; ruleId: string; projectId: string; version: number };
