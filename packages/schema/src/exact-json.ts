/** The part of ES2026's JSON that TypeScript's library does not describe yet. */
type SourceTextJson = {
  parse(
    text: string,
    reviver: (key: string, value: unknown, context: { source?: string }) => unknown,
  ): unknown;
  rawJSON(text: string): object;
  isRawJSON(value: unknown): boolean;
};

const sourceTextJson = JSON as unknown as SourceTextJson;

/** The text without the zeros at its end. By hand: /0+$/ takes quadratic time on zeros that are not at the end. */
function dropLastZeros(digits: string): string {
  let end = digits.length;
  while (digits.charCodeAt(end - 1) === 0x30) end -= 1;
  return digits.slice(0, end);
}

/** Sign, digits without outer zeros, and exponent of a decimal number, as one text; equal texts are equal numbers. */
function canonicalDecimal(text: string): string {
  const match = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text);
  if (match === null) return text;
  const [, sign = '', whole = '', fraction = '', exponent = '0'] = match;
  const digits = (whole + fraction).replace(/^0+/, '');
  if (digits === '') return '0';
  const significant = dropLastZeros(digits);
  const shift = BigInt(exponent) - BigInt(fraction.length) + BigInt(digits.length - significant.length);
  return `${sign}${significant}e${shift}`;
}

/** Exponents longer than this are kept as text without being computed. */
const EXPONENT_DIGITS_MAX = 5;

function isChangedByParsing(source: string, value: number): boolean {
  if (!Number.isFinite(value)) return true;
  const exponent = /[eE][+-]?(\d+)$/.exec(source)?.[1];
  if (exponent !== undefined && exponent.length > EXPONENT_DIGITS_MAX) return true;
  return canonicalDecimal(source) !== canonicalDecimal(String(value));
}

/**
 * JSON.parse that loses no number: one that a double cannot hold (integers beyond 2^53, too many digits, too large
 * an exponent) becomes a raw JSON number, which JSON.stringify writes as it came; see isRawNumber.
 * Recurses: check the depth of hostile text first. Throws SyntaxError as JSON.parse.
 */
export function parseExactJson(text: string): unknown {
  return sourceTextJson.parse(text, (_key, value, context) => {
    if (typeof value !== 'number' || context.source === undefined) return value;
    return isChangedByParsing(context.source, value) ? sourceTextJson.rawJSON(context.source) : value;
  });
}

/** Whether a value of parseExactJson stands for a number that a double cannot hold. */
export function isRawNumber(value: unknown): value is { rawJSON: string } {
  return sourceTextJson.isRawJSON(value);
}
