import { countUtf8Bytes } from '@logpond/schema/log-entry';

/**
 * Bytes of a literal that are looked for: most literals as a whole. With at most four spellings each, the automaton of
 * 500 literals stays below the size that it refuses.
 */
const SEGMENT_BYTES_MAX = 32;
/** K's in a segment; each doubles its spellings. */
const K_MAX = 1;
/** U+212A, the Kelvin sign: in lower case it is an ASCII k. */
const KELVIN = '\u212a';
/** U+0130, a capital I with a dot: in lower case it is an ASCII i and a combining dot, U+0307. */
const DOTTED_I = '\u0130';

/**
 * Characters that lower case leaves alone and makes of nothing else: besides ASCII (but for k and i, see above) those
 * without case. Their bytes in a text in lower case are bytes of the text before.
 */
const LOOKED_FOR = /^(?:[\0-\x7f]|(?!\u0307)\P{Cased})$/u;

/**
 * `spellings`, in lower case: one of them must be in a text (ASCII letters in either case) for the lower case of the
 * text to contain the literal. `isWhole`: that is also enough; else a text with one of them still has to be tested.
 */
export type Triggers = { spellings: string[]; isWhole: boolean };

/** What to look for to find the literal `lower`; undefined when none of its characters can be looked for. */
export function findTriggers(lower: string): Triggers | undefined {
  const segment = findSegment(Array.from(lower));
  if (segment.length === 0) return undefined;
  const spellings = segment.reduce<string[]>(
    (known, character, index) => {
      const others =
        character === 'k' ? [KELVIN] : character === 'i' && index === segment.length - 1 ? [DOTTED_I] : [];
      return [character, ...others].flatMap((other) => known.map((spelling) => spelling + other));
    },
    [''],
  );
  return { spellings, isWhole: segment.join('') === lower };
}

/** The longest run of characters that can be looked for, cut to the bounds. */
function findSegment(characters: readonly string[]): string[] {
  let longest: string[] = [];
  let current: string[] = [];
  for (const character of characters) {
    if (!LOOKED_FOR.test(character)) {
      current = [];
      continue;
    }
    const next = [...current, character];
    const ks = next.filter((one) => one === 'k').length;
    current = ks > K_MAX || countUtf8Bytes(next.join('')) > SEGMENT_BYTES_MAX ? [character] : next;
    if (current.length > longest.length) longest = current;
  }
  return longest;
}
