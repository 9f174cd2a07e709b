import { z } from 'zod';
import { integerParameter } from './query-parameter.ts';

/**
 * Why acknowledged entries could not be stored. `refused_by_store`: ClickHouse refuses them every time.
 * `damaged_block`: their bytes in the stream cannot be read. `kills_reader`: decoding them ended the reader.
 */
const DEAD_REASONS = ['refused_by_store', 'damaged_block', 'kills_reader'] as const;

/** A letter's id: 1 to 100 letters, digits, hyphens and underscores. */
export const DEAD_LETTER_ID = /^[A-Za-z0-9_-]{1,100}$/;

/** Acknowledged entries of one project that could not be stored. */
export const deadLetterSchema = z
  .object({
    id: z.string().regex(DEAD_LETTER_ID),
    projectId: z.uuid(),
    reason: z.enum(DEAD_REASONS),
    detail: z.string().describe('What was said when they could not be stored'),
    entries: z.int().min(0).describe('Log entries in the letter'),
    bytes: z.int().min(0).describe('Bytes of its content'),
    createdAt: z.string().meta({ format: 'date-time' }),
  })
  .meta({ id: 'DeadLetter' });

/** Letters of one page unless `limit` says otherwise, and at most. */
const PAGE_DEFAULT = 50;
const PAGE_MAX = 100;

export const deadLetterQueryParams = z.object({
  limit: integerParameter(1, PAGE_MAX).default(PAGE_DEFAULT),
  cursor: z
    .string()
    .regex(/^\d{15}\.[A-Za-z0-9_-]{1,100}$/, 'expected the nextCursor of an answer')
    .optional()
    .describe('nextCursor of the page before'),
});

/** The answer of GET /projects/{id}/dead-letters, newest first. */
export const deadLettersAnswerSchema = z
  .object({ deadLetters: z.array(deadLetterSchema), nextCursor: z.string().nullable() })
  .meta({ id: 'DeadLetters' });
