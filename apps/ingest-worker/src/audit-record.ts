import { declareCounter } from '@logpond/runtime/metrics';
import { z } from 'zod';
import type { Plan } from './plan.ts';
import type { PlanRows } from './plan-rows.ts';

const offset = z.number().int();

const auditRecordSchema = z.object({
  epoch: z.number().int(),
  from: offset,
  to: offset,
  /** Entries that must be stored of it. */
  rows: z.number().int(),
  isUncertain: z.boolean(),
  atMs: z.number().int(),
  retention: z.record(z.string(), z.number().int()),
  minTimeNs: z.string(),
  maxTimeNs: z.string(),
  hours: z.array(z.number().int()).optional(),
  dead: z.array(z.object({ from: offset, to: offset })).optional(),
});

/** What the auditor needs to count a committed plan once more, and to mend it: the plan, its extent, its dead rows. */
export type AuditRecord = z.infer<typeof auditRecordSchema>;

/** A plan of thousands of projects would keep the memory of the streams busy with its audit: it has none. */
const RECORD_LENGTH_MAX = 65_536;

/** The record of a plan that is about to be committed, as text; empty when nothing is to be audited. */
export function writeAuditRecord(
  { epoch }: { epoch: number },
  { from, to, atMs, retention }: Plan,
  rows: PlanRows,
  stored: { rows: number; isUncertain: boolean },
): string {
  if (stored.rows === 0) return '';
  const { minTimeNs, maxTimeNs, hours, dead } = rows;
  const record: AuditRecord = {
    epoch,
    from,
    to,
    atMs,
    retention,
    ...stored,
    minTimeNs: String(minTimeNs),
    maxTimeNs: String(maxTimeNs),
    ...(hours !== undefined && { hours: [...hours] }),
    ...(dead.length > 0 && { dead: [...dead] }),
  };
  const text = JSON.stringify(record);
  if (text.length <= RECORD_LENGTH_MAX) return text;
  unauditedPlans.inc({ reason: 'large' });
  return '';
}

/** Reports plans whose records had to go because too many waited. */
export function noteUnaudited(plans: number): void {
  if (plans > 0) unauditedPlans.inc({ reason: 'waiting' }, plans);
}

const unauditedPlans = declareCounter('logpond_ingest_unaudited_plans_total', {
  help: 'Plans that are not counted once more: large (a record above 64 KB), waiting (10,000 others were in front)',
  labels: ['reason'],
});

/** Reads a record that was written; undefined when it is none of this release. */
export function readAuditRecord(text: string): AuditRecord | undefined {
  const parsed = auditRecordSchema.safeParse(JSON.parse(text));
  return parsed.success ? parsed.data : undefined;
}
