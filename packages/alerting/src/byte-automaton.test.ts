import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ByteAutomaton } from './byte-automaton.ts';

const LETTERS = ['a', 'b', 'c', 'é', '日', '0'];

function find(patterns: readonly string[], text: string): number[] {
  const found = new Int32Array(patterns.length);
  const bytes = Buffer.from(`xx${text}yy`);
  const automaton = new ByteAutomaton(patterns.map((pattern) => Buffer.from(pattern)));
  const count = automaton.scan(bytes, 2, bytes.length - 2, found);
  return Array.from(found.subarray(0, count)).toSorted((a, b) => a - b);
}

describe('ByteAutomaton', () => {
  it('finds exactly the strings that occur, ASCII letters in either case', () => {
    const word = (unit: string[]): fc.Arbitrary<string> =>
      fc.array(fc.constantFrom(...unit), { minLength: 1, maxLength: 5 }).map((letters) => letters.join(''));
    const patterns = fc.array(fc.oneof(word(['a', 'b']), word(LETTERS)), { minLength: 1, maxLength: 12 });
    const run = (wanted: string[], text: string): void => {
      const lower = text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
      const expected = wanted.flatMap((pattern, index) => (lower.includes(pattern) ? [index] : []));
      expect(find(wanted, text)).toEqual(expected);
    };
    const text = fc
      .array(fc.constantFrom('A', 'B', ...LETTERS), { maxLength: 30 })
      .map((letters) => letters.join(''));
    fc.assert(fc.property(patterns, text, run), { numRuns: 3000 });
  });

  it('looks at nothing beyond the bytes it is given', () => {
    expect(find(['xxa', 'by', 'ab'], 'ab')).toEqual([2]);
  });

  it('refuses strings that would take too much memory', () => {
    const encoder = new TextEncoder();
    const pattern = (index: number): Uint8Array =>
      encoder.encode(`${index}`.padEnd(40, '日語ößéñç-_/.:;,abcdefghijklmnopqrstuvw'));
    const patterns = Array.from({ length: 12_000 }, (_, index) => pattern(index));
    expect(() => new ByteAutomaton(patterns)).toThrow('expected a table of at most 16777216 cells');
  });
});
