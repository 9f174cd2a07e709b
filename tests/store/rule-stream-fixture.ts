import type { AlertPlace } from '@logpond/db/alert-cursor';
import type { CountStep } from '@logpond/db/alert-windows';
import type { RuleChange } from '@logpond/db/rule-change';
import { NOW_MS, PROJECT } from './stream-fixture.ts';

/** Where a new shard begins. */
export const START: AlertPlace = { done: 1, controls: 0 };

/** A rule on errors, as the stream carries it. */
export function makeChange(id: string, version = 1): Extract<RuleChange, { op: 'put' }> {
  const createdAt = new Date(NOW_MS).toISOString();
  const condition = {
    field: 'level',
    operator: 'equals',
    value: 'error',
    threshold: 1,
    timeWindow: '1m',
  } as const;
  const rule = { version, id, projectId: PROJECT, generation: 1, createdAt, updatedAt: createdAt };
  return { op: 'put', rule: { ...rule, name: id, enabled: true, condition, notifications: [] } };
}

/** A step that does nothing but what is given. */
export function makeStep(step: Partial<CountStep>): CountStep {
  return { to: START, changes: [], resets: new Set(), windows: new Map(), outbox: [], ...step };
}
