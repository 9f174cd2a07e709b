// key, key=value or key="quoted \" value"; keys as in https://brandur.org/logfmt
const PAIR = /\s*([^\s="']+)=(?:"((?:[^"\\]|\\.)*)"|([^\s"]*))(?=\s|$)/y;
const TELLING_KEYS = new Set([
  'msg',
  'message',
  'level',
  'lvl',
  'severity',
  'ts',
  'time',
  'timestamp',
  'err',
  'error',
]);

/**
 * Reads a line that is wholly key=value pairs. Undefined when anything else is in it, when a key comes
 * twice (one value would be lost), or, with `isGuess`, when it has less than two pairs or none of the
 * keys that log lines have.
 */
export function readLogfmt(line: string, isGuess: boolean): Map<string, string> | undefined {
  const pairs = new Map<string, string>();
  const text = line.trimEnd();
  PAIR.lastIndex = 0;
  for (let end = 0; end < text.length; end = PAIR.lastIndex) {
    const match = PAIR.exec(text);
    if (!match?.[1] || pairs.has(match[1])) return undefined;
    pairs.set(match[1], match[2] === undefined ? (match[3] ?? '') : unquote(match[2]));
  }
  if (pairs.size === 0) return undefined;
  const isTelling = pairs.size >= 2 && [...pairs.keys()].some((key) => TELLING_KEYS.has(key));
  return isGuess && !isTelling ? undefined : pairs;
}

function unquote(text: string): string {
  return text.replace(/\\(.)/g, (_whole, char: string) =>
    char === 'n' ? '\n' : char === 't' ? '\t' : char === 'r' ? '\r' : char,
  );
}
