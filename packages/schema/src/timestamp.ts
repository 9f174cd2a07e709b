/** The latest time that 64 bits of nanoseconds since 1970 can hold: 2262-04-11T23:47:16.854775807Z. */
export const TIMESTAMP_MAX_NS = (1n << 63n) - 1n;

const DAYS_BEFORE_MONTH = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
const DAYS_IN_MONTH = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/** Two digits at `at` as a number, or NaN. */
function readTwoDigits(text: string, at: number): number {
  const tens = text.charCodeAt(at) - 48;
  const ones = text.charCodeAt(at + 1) - 48;
  return tens >= 0 && tens <= 9 && ones >= 0 && ones <= 9 ? tens * 10 + ones : NaN;
}

function isLeapYear(year: number): boolean {
  return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
}

/** Days from 1970-01-01 to a date of the Gregorian calendar, or NaN when there is no such date. */
function countDays(year: number, month: number, day: number): number {
  const isLeap = isLeapYear(year);
  const monthDays = month === 2 && isLeap ? 29 : DAYS_IN_MONTH[month - 1];
  const before = DAYS_BEFORE_MONTH[month - 1];
  if (monthDays === undefined || before === undefined || !(day >= 1 && day <= monthDays)) return NaN;
  const past = year - 1;
  const leapDays = Math.floor(past / 4) - Math.floor(past / 100) + Math.floor(past / 400) - 477;
  return (year - 1970) * 365 + leapDays + before + (isLeap && month > 2 ? 1 : 0) + day - 1;
}

/** Seconds since 1970 of `YYYY-MM-DDThh:mm:ss` as UTC, or NaN. A second of 60 is no second here. */
function readDateTimeS(text: string): number {
  if (text.charCodeAt(4) !== 45 || text.charCodeAt(7) !== 45) return NaN;
  const separator = text.charCodeAt(10);
  if (separator !== 84 && separator !== 116 && separator !== 32) return NaN;
  if (text.charCodeAt(13) !== 58 || text.charCodeAt(16) !== 58) return NaN;
  const year = readTwoDigits(text, 0) * 100 + readTwoDigits(text, 2);
  const hour = readTwoDigits(text, 11);
  const minute = readTwoDigits(text, 14);
  const second = readTwoDigits(text, 17);
  if (!(hour <= 23 && minute <= 59 && second <= 59)) return NaN;
  return (
    countDays(year, readTwoDigits(text, 5), readTwoDigits(text, 8)) * 86_400 +
    hour * 3600 +
    minute * 60 +
    second
  );
}

/** Seconds east of UTC of `Z`, `±hh:mm`, `±hhmm`, `±hh` or nothing, from `at` to the end, or NaN. */
function readOffsetS(text: string, at: number): number {
  const sign = text.charCodeAt(at);
  const rest = text.length - at;
  if (rest === 0 || (rest === 1 && (sign === 90 || sign === 122))) return 0;
  if (sign !== 43 && sign !== 45) return NaN;
  const hasColon = text.charCodeAt(at + 3) === 58;
  if (rest !== 3 && rest !== (hasColon ? 6 : 5)) return NaN;
  const hours = readTwoDigits(text, at + 1);
  const minutes = rest === 3 ? 0 : readTwoDigits(text, at + (hasColon ? 4 : 3));
  if (!(hours <= 23 && minutes <= 59)) return NaN;
  return (sign === 45 ? -1 : 1) * (hours * 3600 + minutes * 60);
}

/** Nanoseconds since 1970 of any year from 0000 to 9999; undefined when the text is no timestamp. */
function parseAnyYearNs(text: string): bigint | undefined {
  if (text.length < 19 || text.length > 35) return undefined;
  let at = 19;
  let nanos = 0;
  const point = text.charCodeAt(19);
  if (point === 46 || point === 44) {
    at = 20;
    let scale = 1_000_000_000;
    for (let digit = text.charCodeAt(at) - 48; digit >= 0 && digit <= 9; digit = text.charCodeAt(at) - 48) {
      nanos = nanos * 10 + digit;
      scale /= 10;
      at += 1;
      if (at > 29) return undefined;
    }
    if (at === 20) return undefined;
    nanos *= scale;
  }
  const seconds = readDateTimeS(text) - readOffsetS(text, at);
  return Number.isNaN(seconds) ? undefined : BigInt(seconds) * 1_000_000_000n + BigInt(nanos);
}

/**
 * Reads an RFC 3339 timestamp: any offset or none (= UTC), 0-9 fraction digits; `t`, `z`, a space for `T`, a comma
 * for the point and offsets without colon are accepted too. Returns nanoseconds since 1970, or undefined when the
 * text is no such timestamp (a second of 60 included) or lies before 1970 or after TIMESTAMP_MAX_NS.
 */
export function parseTimestampNs(text: string): bigint | undefined {
  const ns = parseAnyYearNs(text);
  return ns === undefined || ns < 0n || ns > TIMESTAMP_MAX_NS ? undefined : ns;
}

/** As parseTimestampNs, for the bound of a range: times before 1970 and after 2262 become the nearest valid one. */
export function parseRangeBoundNs(text: string): bigint | undefined {
  const ns = parseAnyYearNs(text);
  if (ns === undefined) return undefined;
  return ns < 0n ? 0n : ns > TIMESTAMP_MAX_NS ? TIMESTAMP_MAX_NS : ns;
}

/** Writes nanoseconds since 1970 as UTC with `Z` and 3, 6 or 9 fraction digits, as few as hold the time exactly. */
export function formatTimestampNs(ns: bigint): string {
  const belowMs = Number(ns % 1_000_000n);
  const text = new Date(Number(ns / 1_000_000n)).toISOString();
  if (belowMs === 0) return text;
  const digits =
    belowMs % 1000 === 0 ? String(belowMs / 1000).padStart(3, '0') : String(belowMs).padStart(6, '0');
  return `${text.slice(0, -1)}${digits}Z`;
}
