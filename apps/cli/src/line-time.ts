import { formatTimestampNs, parseTimestampNs } from '@logpond/schema/timestamp';

/** How a time without an offset is read, and the year of syslog lines that name none. */
export type Clock = { nowMs: number; isUtc: boolean };

const MONTHS = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const LEAD_CHARS = 128;

// A timestamp stands at the start of the line, alone, in a bracket, or after a few words and a colon
// ("Start-Date: 2026-11-21  13:12:01" of apt).
const ISO =
  /^(?:\[|"|[A-Z][A-Za-z -]{0,20}: )?(\d{4})[-/](\d\d)[-/](\d\d)(?:[Tt]| {1,2})(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?: ?([Zz]|UTC|GMT|[+-]\d\d:?\d\d))?(?!\d)/;
const SYSLOG =
  /^(?:<\d{1,3}>)?([A-Z][a-z]{2}) {1,2}(\d{1,2})(?: (\d{4}))? (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?!\d)/;
// The common log format of web servers: host ident user [21/Nov/2026:13:12:01 +0000] …
const ACCESS = /^\S+ \S+ \S+ \[(\d\d)\/([A-Z][a-z]{2})\/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-]\d{4})\]/;
const SYSLOG_5424 = /^<\d{1,3}>1 (\S+) /;

/** The leading time of a plain line as RFC 3339 in UTC; undefined when the line starts with none that is valid. */
export function readLineTime(text: string, clock: Clock): string | undefined {
  const lead = text.slice(0, LEAD_CHARS);
  const iso = ISO.exec(lead);
  if (iso) return toTime(iso.slice(1, 7), iso[7], iso[8], clock);
  const syslog = SYSLOG.exec(lead);
  if (syslog) return readSyslogTime(syslog, clock);
  const access = ACCESS.exec(lead);
  if (access) {
    const [, day, month, year, hour, minute, second, offset] = access;
    return toTime([year, monthNumber(month), day, hour, minute, second], undefined, offset, clock);
  }
  const header = SYSLOG_5424.exec(lead)?.[1];
  return header ? normalizeTime(header) : undefined;
}

/** The time in the name of a file that carries one (npm's `2026-11-21T13_33_35_291Z-debug-0.log`), in UTC. */
export function readFileNameTime(name: string): string | undefined {
  const match = /^(\d{4}-\d\d-\d\dT)(\d\d)_(\d\d)_(\d\d)_(\d{3})Z-/.exec(name);
  return match ? normalizeTime(`${match[1]}${match[2]}:${match[3]}:${match[4]}.${match[5]}Z`) : undefined;
}

/**
 * The time of a JSON field: RFC 3339 text as it is, any form of readLineTime, or a number (also as
 * text) of seconds, ms, µs or ns since 1970, told apart by its size. Undefined when it is none.
 */
export function readFieldTime(text: string, clock: Clock): string | undefined {
  if (/^\d{9,19}(\.\d{1,9})?$/.test(text)) return readEpochTime(text);
  return parseTimestampNs(text) === undefined ? readLineTime(text, clock) : text;
}

function readEpochTime(text: string): string {
  const [whole = '0', fraction = ''] = text.split('.');
  // 11 digits of seconds reach the year 5138; 14 of ms and 17 of µs likewise.
  const unitDigits = whole.length <= 11 ? 9 : whole.length <= 14 ? 6 : whole.length <= 17 ? 3 : 0;
  const fractionNs = fraction.slice(0, unitDigits).padEnd(unitDigits, '0') || '0';
  return formatTimestampNs(BigInt(whole) * 10n ** BigInt(unitDigits) + BigInt(fractionNs));
}

function readSyslogTime(match: RegExpExecArray, clock: Clock): string | undefined {
  const [, month, day, year, hour, minute, second, fraction] = match;
  const thisYear = new Date(clock.nowMs).getFullYear();
  const at = (value: number | string): string | undefined =>
    toTime(
      [String(value), monthNumber(month), day?.padStart(2, '0'), hour, minute, second],
      fraction,
      undefined,
      clock,
    );
  if (year) return at(year);
  const time = at(thisYear);
  // Without a year a line is never from the future: December lines read in January are last year's.
  if (time && Date.parse(time) > clock.nowMs + 86_400_000) return at(thisYear - 1);
  return time ?? at(thisYear - 1);
}

function toTime(
  parts: (string | undefined)[],
  fraction: string | undefined,
  zone: string | undefined,
  clock: Clock,
): string | undefined {
  const [year, month, day, hour, minute, second] = parts;
  const wall = `${year}-${month}-${day}T${hour}:${minute}:${second}`;
  const digits = fraction ? `.${fraction}` : '';
  if (zone) {
    const offset = /^[+-]/.test(zone) ? zone.replace(/^(...)(\d\d)$/, '$1:$2') : 'Z';
    return normalizeTime(`${wall}${digits}${offset}`);
  }
  // Checked as UTC first: Date would turn 30 February into March.
  if (parseTimestampNs(`${wall}Z`) === undefined) return undefined;
  if (clock.isUtc) return normalizeTime(`${wall}${digits}Z`);
  const localMs = Date.parse(wall);
  return Number.isNaN(localMs)
    ? undefined
    : normalizeTime(`${new Date(localMs).toISOString().slice(0, 19)}${digits}Z`);
}

function normalizeTime(text: string): string | undefined {
  const ns = parseTimestampNs(text);
  return ns === undefined ? undefined : formatTimestampNs(ns);
}

function monthNumber(name: string | undefined): string {
  return String(MONTHS.indexOf((name ?? '').toLowerCase()) + 1).padStart(2, '0');
}
