import type { Level } from '@logpond/schema/log-entry';

/** How each level is called elsewhere: syslog (RFC 5424 §6.2.1), npm, winston, Java, Go, Python. */
const NAMES_OF: Record<Level, readonly string[]> = {
  debug: ['trace', 'debug', 'dbg', 'verbose', 'silly', 'fine', 'finer', 'finest'],
  info: ['info', 'information', 'informational', 'notice', 'log', 'http', 'timing', 'success'],
  warn: ['warn', 'warning', 'wrn'],
  error: ['error', 'err', 'severe', 'failure'],
  critical: ['critical', 'crit', 'fatal', 'alert', 'emerg', 'emergency', 'panic'],
};

const LEVEL_OF = new Map<string, Level>(
  (Object.keys(NAMES_OF) as Level[]).flatMap((level) =>
    NAMES_OF[level].map((name) => [name, level] as const),
  ),
);

/** The five levels of an entry, mildest first. */
export const LEVEL_NAMES = Object.keys(NAMES_OF) as readonly Level[];

/** True for one of the five, in any letter case. */
export function isOwnLevel(name: string): boolean {
  return (LEVEL_NAMES as readonly string[]).includes(name.toLowerCase());
}

/** The level that a foreign name stands for, in any letter case; undefined when unknown. */
export function levelOfName(name: string): Level | undefined {
  return LEVEL_OF.get(name.toLowerCase());
}

/**
 * The level of a number: 0-7 are syslog priorities (RFC 5424 §6.2.1, 0 the worst), 8 and above the
 * tens of pino and bunyan (10 trace … 60 fatal). Undefined outside 0-69.
 */
export function levelOfNumber(value: number): Level | undefined {
  if (!(value >= 0 && value < 70)) return undefined;
  if (value <= 7)
    return (['critical', 'critical', 'critical', 'error', 'warn', 'info', 'info', 'debug'] as const)[
      Math.floor(value)
    ];
  return (['debug', 'debug', 'debug', 'info', 'warn', 'error', 'critical'] as const)[Math.floor(value / 10)];
}

const LEAD_CHARS = 96;
const CAPITALS =
  /(?<![\w=/@+-])(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERR|ERROR|SEVERE|FATAL|CRIT|CRITICAL|ALERT|EMERG|PANIC)(?![\w=./@+-])/;
const MARKED = /(?:[[<(]\s*([a-zA-Z]{3,13})\s*[\])>])|(?:(?<![\w=./@+-])([a-zA-Z]{3,13}):(?=\s|$))/g;
const NPM_LINE = /^\d+ (silly|verbose|http|timing|info|notice|warn|error) /;

/**
 * Guesses the level of a plain line (without its colours) from its first 96 characters: npm's debug
 * lines, a marked word (`[warn]`, `<err>`, `error: `), or a word in capitals, none of them part of a name
 * (`liblog-trace:amd64`). Undefined when none is there.
 */
export function guessLevel(text: string): Level | undefined {
  const lead = text.slice(0, LEAD_CHARS);
  const npm = NPM_LINE.exec(lead);
  if (npm?.[1]) return levelOfName(npm[1]);
  for (const match of lead.matchAll(MARKED)) {
    const word = match[1] ?? match[2] ?? '';
    if (word !== 'log') {
      const level = levelOfName(word);
      if (level) return level;
    }
  }
  const capitals = CAPITALS.exec(lead);
  return capitals?.[1] ? levelOfName(capitals[1]) : undefined;
}
