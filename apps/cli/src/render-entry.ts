import { isContainer, parseLossless, readScalar } from './lossless-json.ts';

// C0 but the tab, C1, line separators, and marks that reorder text.
const STEERING = /(?!\t)[\p{Cc}\u2028\u2029\u202A-\u202E\u2066-\u2069]/gu;
const RESET = '\u001B[0m';
const DIM = '\u001B[2m';
const COLOUR_OF: Record<string, string> = {
  debug: '\u001B[90m',
  info: '\u001B[32m',
  warn: '\u001B[33m',
  error: '\u001B[31m',
  critical: '\u001B[1;37;41m',
};

/**
 * An entry's JSON as a line for people: time, level, service, message, then metadata as key=value.
 * Control characters are written out (\x1b), because whoever can write a log line could otherwise
 * steer the terminal of whoever reads it; further lines of a message are indented.
 */
export function renderEntry(entryJson: string, isColoured: boolean): string {
  const entry = toObject(parseLossless(entryJson));
  const level = readScalar(entry['level']) ?? '';
  const paint = (code: string, text: string): string =>
    isColoured && text ? `${code}${text}${RESET}` : text;
  const fields = renderFields(entry);
  const parts = [
    paint(DIM, escapeControls(readScalar(entry['time']) ?? '')),
    paint(COLOUR_OF[level] ?? '', level.toUpperCase().padEnd(8)),
    escapeControls(readScalar(entry['service']) ?? ''),
    escapeControls(readScalar(entry['message']) ?? ''),
  ];
  if (fields) parts.push(paint(DIM, fields));
  return parts.join(' ');
}

/** Control characters as \xHH, tabs kept, line ends followed by four spaces. */
function escapeControls(text: string): string {
  return text.replace(STEERING, (char) => {
    if (char === '\n') return '\n    ';
    const code = char.charCodeAt(0);
    return code < 256 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16)}`;
  });
}

function renderFields(entry: Record<string, unknown>): string {
  const pairs: string[] = [];
  const metadata = toObject(entry['metadata']);
  for (const key of Object.keys(metadata)) pairs.push(`${escapeControls(key)}=${renderValue(metadata[key])}`);
  for (const key of ['trace_id', 'span_id', 'session_id']) {
    if (entry[key] !== undefined) pairs.push(`${key}=${renderValue(entry[key])}`);
  }
  return pairs.join(' ');
}

function renderValue(value: unknown): string {
  const text = typeof value === 'string' && /^[^\s"=]+$/.test(value) ? value : JSON.stringify(value);
  return escapeControls(text);
}

function toObject(value: unknown): Record<string, unknown> {
  return isContainer(value) && !Array.isArray(value) ? value : {};
}
