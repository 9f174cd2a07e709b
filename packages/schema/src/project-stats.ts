import { z } from 'zod';

const timeSchema = z.string().meta({ format: 'date-time' });

/** The answer of GET /projects/{id}/stats. */
export const projectStatsSchema = z
  .object({
    entries: z.int().min(0).describe('Entries that can be found: stored, and within the retention'),
    bytes: z
      .int()
      .min(0)
      .describe(
        'Estimate of what they take on disk: entries, times the mean size of the newest 1,000, times the compression of all stored entries',
      ),
    oldest: timeSchema.nullable().describe('Time of the oldest of them'),
    newest: timeSchema.nullable().describe('Time of the newest of them'),
    backlog: z
      .object({ entries: z.int().min(0), seconds: z.number().min(0) })
      .describe(
        'Acknowledged entries that wait to be stored, and for how long the oldest of their shard has',
      ),
  })
  .meta({ id: 'ProjectStats' });
