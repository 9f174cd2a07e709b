import { z } from 'zod';
import { parseTimestampNs } from './timestamp.ts';

/** The five levels, least severe first; the wire number of a level is its index + 1. */
export const LEVELS = ['debug', 'info', 'warn', 'error', 'critical'] as const;
export type Level = (typeof LEVELS)[number];

/** Unicode code points. */
export const SERVICE_LENGTH_MAX = 100;
/** Bytes of UTF-8. */
export const MESSAGE_BYTES_MAX = 65_536;
/** Bytes of the entry as compact JSON text, unknown keys folded into its metadata. */
export const ENTRY_BYTES_MAX = 262_144;
/** Nested objects and arrays; metadata itself is 1. */
export const METADATA_DEPTH_MAX = 32;
/** Keys of all objects of one metadata together. */
export const METADATA_KEYS_MAX = 256;
/** Unicode code points of `trace_id`, `span_id` and `session_id`. */
export const CORRELATION_LENGTH_MAX = 128;
/** How far ahead of the server's clock an entry may be. */
export const FUTURE_MAX_MS = 600_000;

/** A log entry that passed every rule, in the form that is stored. `level` is 1 (debug) to 5 (critical). */
export type CheckedEntry = {
  timeNs: bigint;
  level: number;
  service: string;
  message: string;
  /** JSON text of an object. */
  metadataJson: string;
  traceId?: string | undefined;
  spanId?: string | undefined;
  sessionId?: string | undefined;
};

/** Why one log entry of a batch was refused. */
export type EntryRefusal = { code: string; path: string; message: string };

const LEVEL_NUMBERS: ReadonlyMap<string, number> = new Map(LEVELS.map((level, index) => [level, index + 1]));

/** Wire number of a level in any letter case, or undefined. */
export function levelNumberOf(text: string): number | undefined {
  return LEVEL_NUMBERS.get(text) ?? LEVEL_NUMBERS.get(text.toLowerCase());
}

/** The level of a wire number, or undefined. */
export function levelOfNumber(number: number): Level | undefined {
  return LEVELS[number - 1];
}

/** Unicode code points of a text, counted no further than just beyond `max`. */
export function isLongerThan(text: string, max: number): boolean {
  if (text.length <= max) return false;
  if (text.length > 2 * max) return true;
  let count = 0;
  for (const _ of text) count += 1;
  return count > max;
}

/** Bytes of the text in UTF-8; a lone surrogate counts as the three bytes of U+FFFD. */
export function countUtf8Bytes(text: string): number {
  let bytes = 0;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit < 0x80) bytes += 1;
    else if (unit < 0x800) bytes += 2;
    else if (unit >= 0xd800 && unit < 0xdc00 && (text.charCodeAt(at + 1) & 0xfc00) === 0xdc00) {
      bytes += 4;
      at += 1;
    } else bytes += 3;
  }
  return bytes;
}

const correlationSchema = z
  .string()
  .refine((text) => !isLongerThan(text, CORRELATION_LENGTH_MAX))
  .nullish()
  .meta({ maxLength: CORRELATION_LENGTH_MAX });

const timestampSchema = z
  .string()
  .refine((text) => parseTimestampNs(text) !== undefined)
  .nullish()
  .meta({ format: 'date-time' });

/**
 * A log entry as it may be sent: the documentation of the rules, and their oracle in tests. The hot path uses
 * checkLogEntry, which a property test holds equal to this; the limits on metadata (depth, keys) and on the size of
 * an entry are checked there after folding.
 */
export const logEntrySchema = z
  .looseObject({
    time: timestampSchema.describe(
      'RFC 3339; absent = time of arrival; within [now - retention, now + 10 min]',
    ),
    service: z
      .string()
      .min(1)
      .refine((text) => !isLongerThan(text, SERVICE_LENGTH_MAX))
      .meta({ maxLength: SERVICE_LENGTH_MAX }),
    level: z
      .string()
      .refine((text) => levelNumberOf(text) !== undefined)
      .meta({ enum: [...LEVELS], description: 'Any letter case is accepted' }),
    message: z
      .string()
      .refine((text) => countUtf8Bytes(text) <= MESSAGE_BYTES_MAX)
      .meta({ description: 'At most 65,536 bytes of UTF-8' }),
    metadata: z
      .union([z.record(z.string(), z.unknown()), z.array(z.never()).max(0)])
      .nullish()
      .describe(
        'Any JSON object: depth at most 32, at most 256 keys. Unknown top-level keys are folded into it',
      ),
    trace_id: correlationSchema.describe('A UUID, its 32-hex form, or any other text'),
    span_id: correlationSchema,
    session_id: correlationSchema,
  })
  .meta({ id: 'LogEntryInput' });

/** A log entry as every route returns it. Absent optional fields are left out. */
export const storedEntrySchema = z
  .object({
    id: z.uuid(),
    time: z.string().meta({ format: 'date-time' }),
    service: z.string(),
    level: z.enum(LEVELS),
    message: z.string(),
    metadata: z.record(z.string(), z.unknown()),
    trace_id: z.string().optional(),
    span_id: z.string().optional(),
    session_id: z.string().optional(),
    project_id: z.uuid().optional().describe('Present when a session asked'),
  })
  .meta({ id: 'LogEntry' });
