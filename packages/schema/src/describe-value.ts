import { isRawNumber } from './exact-json.ts';

const DESCRIPTION_LENGTH_MAX = 80;

/** What came, for an error sentence: at most 80 characters, on one line, never the inside of an object. */
export function describeValue(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (Array.isArray(value)) return value.length === 0 ? 'an empty array' : `an array of ${value.length}`;
  if (isRawNumber(value)) return shorten(value.rawJSON);
  if (typeof value === 'object' && value !== null) return 'an object';
  if (typeof value === 'string') return shorten(JSON.stringify(value.slice(0, DESCRIPTION_LENGTH_MAX)));
  if (typeof value === 'number' || typeof value === 'boolean' || value === null) return String(value);
  return typeof value;
}

function shorten(text: string): string {
  return text.length <= DESCRIPTION_LENGTH_MAX ? text : `${text.slice(0, DESCRIPTION_LENGTH_MAX - 1)}…`;
}
