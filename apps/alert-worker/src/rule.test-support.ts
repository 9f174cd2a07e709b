import type { OutboxItem } from '@logpond/db/alert-windows';
import type { AlertRuleDocument } from '@logpond/db/rule-change';
import type { StreamBlock } from '@logpond/db/stream-block';
import { BlockEncoder } from '@logpond/log-block/encode';
import type { EncodedBlock } from '@logpond/log-block/encode';
import type { CheckedEntry } from '@logpond/schema/log-entry';

export const PROJECT = '0190a5e0-0000-7000-8000-000000000001';
export const OTHER = '0190a5e0-0000-7000-8000-000000000002';
/** A whole minute, so that it is a limit of any bucket up to that. */
export const NOW_S = 1_790_000_040;
const CREATED_AT = new Date(NOW_S * 1_000).toISOString();

/** A rule on errors, three in ten seconds. */
export function makeRule(
  changes: Partial<AlertRuleDocument> & { threshold?: number; timeWindow?: string } = {},
): AlertRuleDocument {
  const { threshold = 3, timeWindow = '10s', ...rest } = changes;
  return {
    id: '0190a5e0-0000-7000-8000-0000000000aa',
    projectId: PROJECT,
    version: 1,
    generation: 1,
    name: 'many errors',
    enabled: true,
    condition: { field: 'level', operator: 'equals', value: 'error', threshold, timeWindow },
    notifications: [],
    createdAt: CREATED_AT,
    updatedAt: CREATED_AT,
    ...rest,
  };
}

/** Entries of one request; `second` is their time, and when they were received unless `receivedSecond` is given. */
export type TestRun = {
  projectId?: string;
  second: number;
  receivedSecond?: number;
  entries: readonly (Partial<CheckedEntry> & { second?: number })[];
};

/** These runs as the API would put them on the stream. */
export function encodeRuns(runs: readonly TestRun[]): EncodedBlock {
  const encoder = new BlockEncoder();
  for (const { projectId = PROJECT, second, receivedSecond = second, entries } of runs) {
    encoder.beginRun(projectId, receivedSecond * 1_000);
    for (const { second: own = second, ...entry } of entries) {
      const timeNs = BigInt(own) * 1_000_000_000n + 5n;
      encoder.appendEntry({ timeNs, level: 4, service: 'web', message: 'no', metadataJson: '{}', ...entry });
    }
    encoder.endRun(entries.length * 100);
  }
  return encoder.finish(NOW_S * 1_000);
}

/** A block as it lies in the stream at this offset. */
export function makeStreamBlock(firstOffset: number, runs: readonly TestRun[]): StreamBlock {
  const { block, digest, rows, runs: summaries } = encodeRuns(runs);
  return { firstOffset, rows, rawBytes: block.length, runs: summaries, block, digest };
}

/** `count` entries of level error. */
export function errors(count: number): { level: number }[] {
  return Array.from({ length: count }, () => ({ level: 4 }));
}

/** What of outbox items tests look at; times in seconds after NOW_S. */
export function brief({ kind, repeat, count, peak, startedAtMs, resolvedAtMs }: OutboxItem): object {
  const after = (ms: number): number => ms / 1_000 - NOW_S;
  const resolvedAt = resolvedAtMs === null ? null : after(resolvedAtMs);
  return { kind, repeat, count, peak, startedAt: after(startedAtMs), resolvedAt };
}
