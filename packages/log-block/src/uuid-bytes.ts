const HEX = '0123456789abcdef';
const HEX_PAIRS = Array.from({ length: 256 }, (_, byte) => HEX.charAt(byte >> 4) + HEX.charAt(byte & 15));

/** Value of a lower-case hex digit by character code, else 255; two further bits are free in every digit. */
const LOWER_HEX = new Uint8Array(128).fill(255);
const ANY_HEX = new Uint8Array(128).fill(255);
for (let digit = 0; digit < 16; digit += 1) {
  LOWER_HEX[HEX.charCodeAt(digit)] = digit;
  ANY_HEX[HEX.charCodeAt(digit)] = digit;
  ANY_HEX[HEX.toUpperCase().charCodeAt(digit)] = digit;
}

/** Where the first digit of each byte stands in `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`. */
const UUID_DIGITS = Uint8Array.from([0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34]);
const HEX_DIGITS = Uint8Array.from({ length: 16 }, (_, index) => index * 2);
/** Byte of the UUID that stands at each place on ClickHouse's wire: two little-endian halves, the high one first. */
const WIRE_ORDER = Uint8Array.from([7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8]);

function writeDigits(
  target: Uint8Array,
  at: number,
  text: string,
  places: Uint8Array,
  values: Uint8Array,
): boolean {
  let isBad = 0;
  for (let index = 0; index < 16; index += 1) {
    const place = places[WIRE_ORDER[index] ?? 0] ?? 0;
    const high = values[text.charCodeAt(place)] ?? 255;
    const low = values[text.charCodeAt(place + 1)] ?? 255;
    isBad |= high | low;
    target[at + index] = (high << 4) | low;
  }
  return isBad < 16;
}

function hasUuidDashes(text: string): boolean {
  return (
    text.charCodeAt(8) === 45 &&
    text.charCodeAt(13) === 45 &&
    text.charCodeAt(18) === 45 &&
    text.charCodeAt(23) === 45
  );
}

/**
 * Writes the 16 bytes of a UUID (36 characters) or of its 32-hex form at `at`, in ClickHouse's wire order. Returns
 * whether the text was one; if not, the bytes there are undefined. `isAnyCase`: upper-case digits count too.
 */
export function writeUuidWire(target: Uint8Array, at: number, text: string, isAnyCase: boolean): boolean {
  const values = isAnyCase ? ANY_HEX : LOWER_HEX;
  if (text.length === 32) return writeDigits(target, at, text, HEX_DIGITS, values);
  return text.length === 36 && hasUuidDashes(text) && writeDigits(target, at, text, UUID_DIGITS, values);
}

/** The 32 hex digits of the UUID at `at` in ClickHouse's wire order. */
export function readHexWire(source: Uint8Array, at: number): string {
  let text = '';
  for (const place of WIRE_ORDER) text += HEX_PAIRS[source[at + place] ?? 0];
  return text;
}

/** The lower-case UUID at `at` in ClickHouse's wire order. */
export function readUuidWire(source: Uint8Array, at: number): string {
  return addDashes(readHexWire(source, at));
}

/** The UUID of 32 hex digits. */
export function addDashes(hex: string): string {
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** The 16 bytes of a UUID in the order they are written; throws RangeError when the text is no UUID. */
export function uuidToBytes(text: string): Buffer {
  const bytes = Buffer.from(text.replaceAll('-', ''), 'hex');
  if (text.length !== 36 || !hasUuidDashes(text) || bytes.length !== 16) {
    throw new RangeError(`expected a UUID, got ${JSON.stringify(text.slice(0, 80))}`);
  }
  return bytes;
}
