import { z } from 'zod';
import type { StreamRange } from '@logpond/db/log-cursor';
import type { Projects } from '@logpond/db/projects';

const planSchema = z.object({
  from: z.number().int(),
  to: z.number().int(),
  atMs: z.number().int(),
  retention: z.record(z.string(), z.number().int()),
});

/**
 * What will be inserted, written down before the first try so that every later try is the same to the byte:
 * the entries `[from, to)`, when it was planned, and each project's retention class in days at that time.
 * (The class is part of the partition, and deduplication tokens work per partition.)
 */
export type Plan = z.infer<typeof planSchema>;

/** What a deleted project's last entries are kept for; nobody can read them any more. */
export const ORPHAN_CLASS_DAYS = 1;

/** Reads a plan that was written down. @throws when it is not one. */
export function readPlan(text: string): Plan {
  return planSchema.parse(JSON.parse(text));
}

/**
 * Plans the insert of a range.
 *
 * Whether entries are past their retention is judged by `atMs`. A clock that says more than a day beyond the newest of
 * them is not believed: one that is wrong would let entries go that were acknowledged a moment ago. What did wait for
 * longer than a day is stored as if it had not, and goes when its partition does.
 */
export async function planRange(
  range: StreamRange,
  classOf: (projectId: string) => Promise<number | undefined>,
  nowMs: number,
): Promise<Plan> {
  const projectIds = new Set(range.blocks.flatMap(({ runs }) => runs.map((run) => run.projectId)));
  const retention: Record<string, number> = {};
  for (const projectId of projectIds) {
    retention[projectId] = (await classOf(projectId)) ?? ORPHAN_CLASS_DAYS;
  }
  return { from: range.from, to: range.to, atMs: boundClock(range, nowMs), retention };
}

const CLOCK_AHEAD_MAX_MS = 86_400_000;

/** The time, or when the newest entry of the range was received where the time is more than a day beyond that. */
export function boundClock({ blocks }: Pick<StreamRange, 'blocks'>, nowMs: number): number {
  let newestMs = 0;
  for (const { runs } of blocks) {
    for (const { receivedAtNs } of runs) newestMs = Math.max(newestMs, Number(receivedAtNs / 1_000_000n));
  }
  return newestMs > 0 && nowMs > newestMs + CLOCK_AHEAD_MAX_MS ? newestMs : nowMs;
}

/** Retention class in days of a project, as it is now; undefined for one that is not there (any more). */
export async function findRetentionClass(projects: Projects, projectId: string): Promise<number | undefined> {
  const project = await projects.find(projectId);
  return project === undefined ? undefined : toRetentionClass(project.retentionDays);
}

const RETENTION_CLASSES_DAYS = [1, 3, 7, 14, 30, 60, 90, 180, 365, 1095, 3650] as const;

/** The class that entries are kept in: the shortest that is not shorter than the project's own retention. */
function toRetentionClass(retentionDays: number): number {
  return RETENTION_CLASSES_DAYS.find((days) => days >= retentionDays) ?? 3650;
}
