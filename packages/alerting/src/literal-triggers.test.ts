import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findTriggers } from './literal-triggers.ts';

/** ASCII letters in lower case, nothing else changed: how the automaton reads bytes. */
function lowerAscii(text: string): string {
  return text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
}

/** Characters with unusual cases: Kelvin, dotted I, sharp s, final sigma, ohm, angstrom, titlecase, a combining dot. */
const ODD = [
  '\u212a',
  '\u0130',
  'ß',
  '\u1e9e',
  'Σ',
  'σ',
  'ς',
  '\u2126',
  '\u212b',
  'ǅ',
  '\u0307',
  'İstanbul',
  '日',
  '😀',
];
const text = fc
  .array(
    fc.oneof(
      fc.constantFrom(...ODD, 'k', 'K', 'i', 'I', 'disk', ' '),
      fc.string({ unit: 'binary', maxLength: 2 }),
    ),
    {
      maxLength: 8,
    },
  )
  .map((parts) => parts.join('').toWellFormed());

describe('findTriggers', () => {
  it.each([
    ['disk full', ['disk full', 'dis\u212a full'], true],
    ['i', ['i', '\u0130'], true],
    ['istanbul', ['istanbul'], true],
    ['kk', ['k', '\u212a'], false],
    ['a kayak', ['a kaya', 'a \u212aaya'], false],
    ['größe 77', ['e 77'], false],
    ['i\u0307', ['i', '\u0130'], false],
    ['日本語', ['日本語'], true],
    ['a very long literal of many words', ['a very long literal of many word'], false],
  ])('looks for %j by %j', (lower, spellings, isWhole) => {
    expect(findTriggers(lower)).toEqual({ spellings, isWhole });
  });

  it.each(['', 'ошибка', 'ß', '\u0307'])('has nothing to look for in %j', (lower) => {
    expect(findTriggers(lower)).toBeUndefined();
  });

  it('says that a spelling is enough only where it is', () => {
    let enough = 0;
    const run = (before: string, literal: string, after: string): void => {
      const triggers = findTriggers(literal.toLowerCase());
      if (triggers?.isWhole !== true) return;
      for (const spelling of triggers.spellings) {
        for (const spelled of [spelling, spelling.toUpperCase()].filter(
          (one) => lowerAscii(one) === spelling,
        )) {
          expect(`${before}${spelled}${after}`.toLowerCase()).toContain(literal.toLowerCase());
          enough += 1;
        }
      }
    };
    fc.assert(fc.property(text, text, text, run), { numRuns: 5000 });
    expect(enough).toBeGreaterThan(1000);
  });

  it('never misses: a text whose lower case contains a literal holds one of its spellings', () => {
    let contained = 0;
    const run = (before: string, middle: string, after: string): void => {
      const lower = `${before}${middle}${after}`.toLowerCase();
      const literal = middle.toLowerCase();
      // Neighbours may change what the middle becomes (a final sigma).
      if (literal === '' || !lower.includes(literal)) return;
      const spellings = findTriggers(literal)?.spellings;
      const seen = lowerAscii(`${before}${middle}${after}`);
      const isFound = spellings?.some((spelling) => seen.includes(spelling)) ?? /[^\0-\x7f]/.test(seen);
      expect(isFound).toBe(true);
      contained += 1;
    };
    fc.assert(fc.property(text, text, text, run), { numRuns: 5000 });
    expect(contained).toBeGreaterThan(2000);
  });

  it('never misses a part of the lower case of any single character', () => {
    const missed: string[] = [];
    for (let point = 0; point < 0x110000; point += 1) {
      if (point >= 0xd800 && point < 0xe000) continue;
      const character = String.fromCodePoint(point);
      const lower = character.toLowerCase();
      if (lower === character && point < 0x80) continue;
      const seen = lowerAscii(character);
      for (const part of new Set([lower, ...Array.from(lower)])) {
        const spellings = findTriggers(part)?.spellings;
        const isFound = spellings === undefined ? point >= 0x80 : spellings.some((one) => seen.includes(one));
        if (!isFound) missed.push(`${point.toString(16)}: ${part}`);
      }
    }
    expect(missed).toEqual([]);
  });
});
