import { isRawNumber, parseExactJson } from '@logpond/schema/exact-json';

// Anything JSON.parse could change has 16 digits (a point may be among them) or an exponent.
const MAY_LOSE_DIGITS = /[0-9.]{16}|\d[eE][+-]?\d/;

/** JSON.parse whose numbers survive JSON.stringify digit by digit; the slow way only where it matters. Throws SyntaxError. */
export function parseLossless(text: string): unknown {
  return MAY_LOSE_DIGITS.test(text) ? parseExactJson(text) : (JSON.parse(text) as unknown);
}

/** The text of a string or of any number, kept ones of parseLossless included; undefined for other values. */
export function readScalar(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  if (typeof value === 'number') return String(value);
  return isRawNumber(value) ? value.rawJSON : undefined;
}

/** True for an object or array, but not for a kept number. */
export function isContainer(value: unknown): value is Record<string, unknown> | unknown[] {
  return typeof value === 'object' && value !== null && !isRawNumber(value);
}
