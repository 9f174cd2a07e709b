import { isRawNumber, parseExactJson } from './exact-json.ts';
import type { EntryRefusal } from './log-entry.ts';
import { METADATA_DEPTH_MAX, METADATA_KEYS_MAX } from './log-entry.ts';

/** An object as JSON.parse makes it, or one without prototype. */
export type JsonObject = Record<string, unknown>;

const KNOWN_KEYS: ReadonlySet<string> = new Set([
  'time',
  'service',
  'level',
  'message',
  'metadata',
  'trace_id',
  'span_id',
  'session_id',
]);

const TOO_DEEP = -1;
const TOO_MANY_KEYS = -2;

/** Keys in `value` and below plus `keys`; TOO_DEEP or TOO_MANY_KEYS instead when it goes over a limit. */
function countKeys(value: object, depth: number, keys: number, hasRawNumbers: boolean): number {
  if (hasRawNumbers && isRawNumber(value)) return keys;
  if (depth > METADATA_DEPTH_MAX) return TOO_DEEP;
  let total = keys;
  if (Array.isArray(value)) {
    for (const item of value as unknown[]) {
      if (typeof item !== 'object' || item === null) continue;
      total = countKeys(item, depth + 1, total, hasRawNumbers);
      if (total < 0) return total;
    }
    return total;
  }
  const object = value as JsonObject;
  for (const key in object) {
    total += 1;
    if (total > METADATA_KEYS_MAX) return TOO_MANY_KEYS;
    const item = object[key];
    if (typeof item !== 'object' || item === null) continue;
    total = countKeys(item, depth + 1, total, hasRawNumbers);
    if (total < 0) return total;
  }
  return total;
}

/** The entry's metadata with its unknown top-level keys, which never replace a key that is there. */
function foldMetadata(entry: JsonObject, metadata: JsonObject | undefined): JsonObject | undefined {
  const usesAlias = entry['time'] === undefined || entry['time'] === null;
  let folded: JsonObject | undefined;
  for (const key in entry) {
    if (KNOWN_KEYS.has(key) || (usesAlias && key === 'timestamp')) continue;
    if (folded === undefined) {
      // No prototype: on an ordinary object the key __proto__ would be lost.
      folded = Object.create(null) as JsonObject;
      for (const own in metadata) folded[own] = metadata[own];
    }
    if (metadata === undefined || !Object.hasOwn(metadata, key)) folded[key] = entry[key];
  }
  return folded ?? metadata;
}

/** JSON text without lone surrogates; JSON.stringify has written those as \udxxx. */
function replaceLoneSurrogates(json: string): string {
  if (!json.includes('\\ud')) return json;
  const replaced = json.replace(/\\(?:u(d[89a-f][0-9a-f]{2})|.)/g, (escape, lone: string | undefined) =>
    lone === undefined ? escape : '\ufffd',
  );
  // Two keys may have become equal: of those the last wins, as everywhere.
  return replaced === json ? json : JSON.stringify(parseExactJson(replaced));
}

function refuseMetadata(message: string): EntryRefusal {
  return { code: 'VALIDATION_ERROR', path: 'metadata', message };
}

/**
 * JSON text of the entry's metadata with its unknown top-level keys folded in; `sent` is its own metadata, if any.
 * Refuses more than METADATA_DEPTH_MAX levels or METADATA_KEYS_MAX keys.
 */
export function readMetadataJson(
  entry: JsonObject,
  sent: JsonObject | undefined,
  hasRawNumbers: boolean,
): string | EntryRefusal {
  const metadata = foldMetadata(entry, sent);
  if (metadata === undefined) return '{}';
  const keys = countKeys(metadata, 1, 0, hasRawNumbers);
  if (keys === TOO_DEEP)
    return refuseMetadata(`expected at most ${METADATA_DEPTH_MAX} nested levels, got more`);
  if (keys === TOO_MANY_KEYS)
    return refuseMetadata(`expected at most ${METADATA_KEYS_MAX} keys on all levels, got more`);
  return replaceLoneSurrogates(JSON.stringify(metadata));
}
