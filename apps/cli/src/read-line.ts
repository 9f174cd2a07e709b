import { stripVTControlCharacters } from 'node:util';
import type { Level } from '@logpond/schema/log-entry';
import { foldRest, readFields } from './json-line.ts';
import type { ReadFields } from './json-line.ts';
import { guessLevel } from './level-names.ts';
import type { RawLine } from './line-splitter.ts';
import type { Clock } from './line-time.ts';
import { readLineTime } from './line-time.ts';
import { readLogfmt } from './logfmt.ts';
import { isContainer, parseLossless } from './lossless-json.ts';
import type { OutgoingEntry } from './outgoing-entry.ts';
import { createMetadata, cutMessage, fitsLimits, putField } from './outgoing-entry.ts';

export const LINE_FORMATS = ['auto', 'plain', 'json', 'logfmt'] as const;
export type LineFormat = (typeof LINE_FORMATS)[number];

/** What `send` was told about the lines. */
export type LineRules = {
  format: LineFormat;
  /** Service of every entry; without it the line's own, else `sourceService`. */
  service: string | undefined;
  sourceService: string;
  /** Level of lines that show none. */
  level: Level;
  fields: readonly (readonly [string, string])[];
  /** Give every entry the time at which it is read. */
  isFromNow: boolean;
};

/** One to many entries of one line (many when it is too long for one), and the time that the line itself showed. */
export type ReadLine = { entries: OutgoingEntry[]; ownTime: string | undefined };

/**
 * Turns a line into entries; never into none and never an error: what is no JSON object and no logfmt,
 * or would break a limit of the service, is a plain line, whose message is the line as it was.
 * `inheritedTime` is for lines that show no time of their own.
 */
export function readLine(
  line: RawLine,
  rules: LineRules,
  clock: Clock,
  inheritedTime: string | undefined,
): ReadLine {
  const fields = line.part === 0 ? readStructured(line.text, rules.format, clock) : undefined;
  if (fields) {
    const entry = buildStructured(line.text, fields, rules, clock, inheritedTime);
    if (fitsLimits(entry)) return { entries: [entry], ownTime: fields.time };
  }
  return buildPlain(line, rules, clock, inheritedTime);
}

function readStructured(text: string, format: LineFormat, clock: Clock): ReadFields | undefined {
  if (format === 'plain') return undefined;
  if (format !== 'logfmt' && /^\s*\{.*\}\s*$/s.test(text)) {
    const value = tryParse(text);
    if (isContainer(value) && !Array.isArray(value)) return readFields(value, clock);
  }
  if (format === 'json') return undefined;
  const pairs = readLogfmt(text, format === 'auto');
  if (!pairs) return undefined;
  const fields = createMetadata();
  for (const [key, value] of pairs) fields[key] = value;
  return readFields(fields, clock);
}

function tryParse(text: string): unknown {
  try {
    return parseLossless(text);
  } catch (error) {
    // RangeError: absurdly deep text.
    if (error instanceof SyntaxError || error instanceof RangeError) return undefined;
    throw error;
  }
}

function buildStructured(
  text: string,
  fields: ReadFields,
  rules: LineRules,
  clock: Clock,
  inheritedTime: string | undefined,
): OutgoingEntry {
  const { rest, ...found } = fields;
  const metadata = createFieldMetadata(rules);
  const entry: OutgoingEntry = {
    ...found,
    service: rules.service ?? found.service ?? rules.sourceService,
    level: found.level ?? rules.level,
    // A line without a message of its own is found by its text all the same.
    message: found.message ?? text,
    metadata,
  };
  if (rules.service !== undefined && found.service !== undefined && found.service !== rules.service) {
    putField(rest, 'service', found.service);
  }
  setTime(entry, rules, clock, found.time, inheritedTime);
  foldRest(rest, metadata);
  return entry;
}

function buildPlain(
  line: RawLine,
  rules: LineRules,
  clock: Clock,
  inheritedTime: string | undefined,
): ReadLine {
  // Terminal colours stay in the message, but must not hide the time and the level.
  const text = line.text.includes('\u001B') ? stripVTControlCharacters(line.text.slice(0, 1024)) : line.text;
  const isContinued = line.part > 1;
  const ownTime = isContinued ? undefined : readLineTime(text, clock);
  const service = rules.service ?? (isContinued ? undefined : readSyslogTag(text)) ?? rules.sourceService;
  const level = (isContinued ? undefined : guessLevel(text)) ?? rules.level;
  const pieces = cutMessage(line.text);
  const entries = pieces.map((message, index) => {
    const entry: OutgoingEntry = { service, level, message, metadata: createFieldMetadata(rules) };
    if (pieces.length > 1 || line.part > 0)
      putField(entry.metadata, 'line_part', Math.max(line.part, 1) + index);
    setTime(entry, rules, clock, ownTime, inheritedTime);
    return entry;
  });
  return { entries, ownTime };
}

function setTime(
  entry: OutgoingEntry,
  rules: LineRules,
  clock: Clock,
  ownTime: string | undefined,
  inheritedTime: string | undefined,
): void {
  const nowTime = (): string => new Date(clock.nowMs).toISOString();
  if (rules.isFromNow && ownTime !== undefined) putField(entry.metadata, 'original_time', ownTime);
  entry.time = rules.isFromNow ? nowTime() : (ownTime ?? inheritedTime ?? nowTime());
}

function createFieldMetadata(rules: LineRules): Record<string, unknown> {
  const metadata = createMetadata();
  for (const [key, value] of rules.fields) metadata[key] = value;
  return metadata;
}

// RFC 3164 and what rsyslog and journalctl print: time, host, program[pid]:
const SYSLOG_TAG =
  /^(?:<\d{1,3}>)?(?:[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*) \S+ ([\w.@/+-]{1,100})(?:\[\d+\])?: /;

function readSyslogTag(text: string): string | undefined {
  return SYSLOG_TAG.exec(text.slice(0, 300))?.[1];
}
