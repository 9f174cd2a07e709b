import { pino } from 'pino';
import type { Logger, LoggerOptions } from 'pino';

export type Log = Logger;

const SECRET_PATTERN = /\b(l[ps]_)[0-9A-Za-z_-]{8,}/g;
const SECRET_FIELDS = ['authorization', 'cookie', 'password', 'token', 'apiKey', 'x-api-key', 'setupToken'];

/**
 * A JSON log on standard output: one constant sentence a line, the rest in fields.
 *
 * Fields that carry secrets are redacted at any of the first two levels, and whatever looks like an API key
 * (`lp_…`) or a session token (`ls_…`) is cut out of the finished line.
 */
export function createLog(component: string, level = 'info'): Log {
  // A reader that went away must not hold the process up: its lines are dropped. (Pino's own destination
  // repeats a write to a closed pipe for ever.)
  if (process.stdout.listenerCount('error') === 0) process.stdout.on('error', () => {});
  const options: LoggerOptions = {
    level,
    base: { component, pid: process.pid },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label) => ({ level: label }) },
    redact: { paths: SECRET_FIELDS.flatMap((field) => [`["${field}"]`, `*["${field}"]`]), censor: '***' },
    hooks: { streamWrite: (line) => line.replace(SECRET_PATTERN, '$1***') },
  };
  return pino(options, process.stdout);
}
