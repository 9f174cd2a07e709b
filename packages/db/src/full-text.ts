/**
 * What a full-text query means: every word and every quoted phrase has to be in the message, in any order
 * and any letter case. Search (in SQL, log-sql.ts) and live tail (`compileTextMatch`) read it from here.
 *
 * Tokens are the engine's `splitByNonAlpha`: runs of ASCII letters and digits and of anything that is not
 * ASCII. A word with separators in it ("foo-bar") means all its tokens, in a phrase in that order.
 */
type FullTextTerms = {
  /** Words outside quotes that hold at least one token. */
  words: string[];
  /** Quoted parts that hold at least one token, without their quotes. */
  phrases: string[];
  /** Set only when the query is nothing but punctuation: it then has to be in the message as written. */
  literal?: string;
};

const TERM = /"([^"]*)"|([^\s"]+)/gu;
const TOKEN = /[0-9a-z\u{80}-\u{10ffff}]+/giu;

/** Splits a query of any characters; an unpaired quote counts as a space. An empty query has no terms. */
export function parseFullText(query: string): FullTextTerms {
  const words: string[] = [];
  const phrases: string[] = [];
  for (const [, phrase, word] of query.matchAll(TERM)) {
    if (phrase !== undefined && splitTokens(phrase).length > 0) {
      phrases.push(phrase);
    } else if (word !== undefined && splitTokens(word).length > 0) {
      words.push(word);
    }
  }
  const literal = query.replaceAll('"', ' ').trim() || query.trim();
  const isPunctuation = words.length === 0 && phrases.length === 0 && literal !== '';
  return isPunctuation ? { words, phrases, literal } : { words, phrases };
}

/**
 * The same decision in JavaScript, for one message at a time. Letter case is folded by toLowerCase, which
 * equals the engine's lowerUTF8 (both ICU) but for characters newer than the older of the two tables.
 */
export function compileTextMatch(
  mode: 'fulltext' | 'substring',
  query: string,
): (message: string) => boolean {
  if (mode === 'substring') {
    const needle = query.toLowerCase();
    return (message) => message.toLowerCase().includes(needle);
  }
  const { words, phrases, literal } = parseFullText(query);
  if (literal !== undefined) {
    const needle = literal.toLowerCase();
    return (message) => message.toLowerCase().includes(needle);
  }
  const wanted = splitTokens(words.join(' ').toLowerCase());
  const sequences = phrases.map((phrase) => splitTokens(phrase.toLowerCase()));
  return (message) => {
    const tokens = splitTokens(message.toLowerCase());
    const known = new Set(tokens);
    return (
      wanted.every((token) => known.has(token)) && sequences.every((part) => holdsSequence(tokens, part))
    );
  };
}

function splitTokens(text: string): string[] {
  return text.match(TOKEN) ?? [];
}

function holdsSequence(tokens: readonly string[], sequence: readonly string[]): boolean {
  const lastStart = tokens.length - sequence.length;
  for (let start = 0; start <= lastStart; start++) {
    if (sequence.every((token, index) => tokens[start + index] === token)) {
      return true;
    }
  }
  return false;
}
