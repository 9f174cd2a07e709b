/** A body nested deeper is refused before it is parsed; entries have their own, lower limit. */
export const BODY_DEPTH_MAX = 40;

/** Any number of up to 15 digits survives JSON.parse; a longer one, or one with an exponent, may not. */
const EXACT_NUMBER_LENGTH_MAX = 15;

/** What a byte means between strings. */
const NOTHING = 0;
const OPENS = 1;
const CLOSES = 2;
const QUOTE = 3;
const DIGIT = 4;
const LINE_END = 5;

/** What a byte means in a string: its end, an escape, or nothing. */
const ESCAPE = 6;

/** What a byte means in a number. */
const PLAIN = 7;
const EXPONENT = 8;

function mapBytes(meanings: readonly (readonly [string, number])[]): Uint8Array {
  const map = new Uint8Array(256);
  for (const [characters, meaning] of meanings) {
    for (const byte of Buffer.from(characters)) map[byte] = meaning;
  }
  return map;
}

const BETWEEN = mapBytes([
  ['[{', OPENS],
  [']}', CLOSES],
  ['"', QUOTE],
  ['0123456789', DIGIT],
  ['\n', LINE_END],
]);
// A raw line end cannot stand in a JSON string: such text is broken, and NDJSON begins anew after it.
const IN_STRING = mapBytes([
  ['"', QUOTE],
  ['\\', ESCAPE],
  ['\n', LINE_END],
]);
const IN_NUMBER = mapBytes([
  ['0123456789.', PLAIN],
  ['eE', EXPONENT],
]);

/** Index of the quote that closes the string which begins at `start`, or of the last byte of its line or of the body. */
function findStringEnd(body: Uint8Array, start: number): number {
  const length = body.length;
  let at = start;
  for (;;) {
    while (at < length && IN_STRING[body[at] as number] === NOTHING) at += 1;
    if (at >= length) return length - 1;
    const byte = body[at] as number;
    if (byte === 0x22) return at;
    if (byte === 0x0a) return at - 1;
    at += 2;
  }
}

/**
 * Looks at the bytes of a JSON text, or with `isLines` of one on each line, before it is parsed. `isTooDeep`: objects
 * and arrays go deeper than BODY_DEPTH_MAX. `mayHoldInexactNumber`: a number might not survive JSON.parse; never
 * wrongly false. Of text that is not JSON the answers may be wrong.
 */
export function scanBody(
  body: Uint8Array,
  isLines: boolean,
): { isTooDeep: boolean; mayHoldInexactNumber: boolean } {
  const length = body.length;
  let depth = 0;
  let mayHoldInexactNumber = false;
  for (let at = 0; at < length; at += 1) {
    const meaning = BETWEEN[body[at] as number];
    if (meaning === NOTHING) continue;
    if (meaning === QUOTE) at = findStringEnd(body, at + 1);
    else if (meaning === OPENS) {
      depth += 1;
      if (depth > BODY_DEPTH_MAX) return { isTooDeep: true, mayHoldInexactNumber };
    } else if (meaning === CLOSES) depth -= 1;
    else if (meaning === DIGIT) {
      const start = at;
      while (at + 1 < length && IN_NUMBER[body[at + 1] as number] === PLAIN) at += 1;
      const hasExponent = IN_NUMBER[body[at + 1] ?? 0] === EXPONENT;
      mayHoldInexactNumber ||= hasExponent || at - start >= EXACT_NUMBER_LENGTH_MAX;
    } else if (isLines) depth = 0;
  }
  return { isTooDeep: false, mayHoldInexactNumber };
}
