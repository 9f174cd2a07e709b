import { METADATA_DEPTH_MAX } from './log-entry.ts';

/** Numbers that a double may not hold: 16 digits or more, or a positive exponent. */
const MAY_BE_LONG = /\d{16}|\d[eE]\+?\d/;
const INTEGER = /^-?\d+$/;

/**
 * Parses the JSON text of an entry's metadata. An integer beyond 2^53, and a number beyond every double, come as the
 * text of their digits, so that they are compared by it. Throws SyntaxError.
 */
export function parseMetadata(json: string): unknown {
  return MAY_BE_LONG.test(json) ? JSON.parse(json, keepLongNumbers) : JSON.parse(json);
}

function keepLongNumbers(
  this: unknown,
  _key: string,
  value: unknown,
  context?: { source?: string },
): unknown {
  if (typeof value !== 'number' || Number.isSafeInteger(value)) return value;
  const source = context?.source ?? '';
  return !Number.isFinite(value) || INTEGER.test(source) ? source : value;
}

/** The ways in which a path with dots is read: as one literal key, and as nested keys. */
export function splitMetadataPath(path: string): string[][] {
  const segments = path.split('.');
  const isNested = segments.length > 1 && segments.length <= METADATA_DEPTH_MAX;
  return isNested ? [[path], segments] : [[path]];
}

/** The values that are at a path (as splitMetadataPath gives it) of parsed metadata; none, one or two. */
export function readMetadataValues(metadata: unknown, keyPaths: readonly (readonly string[])[]): unknown[] {
  const values: unknown[] = [];
  for (const keys of keyPaths) {
    const value = keys.reduce<unknown>(readKey, metadata);
    if (value !== undefined) values.push(value);
  }
  return values;
}

function readKey(holder: unknown, key: string): unknown {
  if (typeof holder !== 'object' || holder === null || Array.isArray(holder) || !Object.hasOwn(holder, key))
    return undefined;
  return Reflect.get(holder, key);
}
