import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { compileTextMatch, parseFullText } from './full-text.ts';

describe('parseFullText', () => {
  it.each([
    ['disk full', { words: ['disk', 'full'], phrases: [] }],
    ['  disk   full ', { words: ['disk', 'full'], phrases: [] }],
    ['"disk full" sda1', { words: ['sda1'], phrases: ['disk full'] }],
    ['/dev/sda1 --', { words: ['/dev/sda1'], phrases: [] }],
    ['disk"full', { words: ['disk', 'full'], phrases: [] }],
    ['Größe', { words: ['Größe'], phrases: [] }],
    ['->', { words: [], phrases: [], literal: '->' }],
    ['"!!!"', { words: [], phrases: [], literal: '!!!' }],
    ['"', { words: [], phrases: [], literal: '"' }],
    ['', { words: [], phrases: [] }],
    [' \t', { words: [], phrases: [] }],
  ])('reads %j', (query, terms) => {
    expect(parseFullText(query)).toEqual(terms);
  });

  it('takes any text without an error', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (query) => {
        const { words, phrases, literal } = parseFullText(query);
        const isEmpty = words.length + phrases.length === 0 && literal === undefined;
        expect(isEmpty).toBe(query.trim() === '');
      }),
    );
  });
});

describe('compileTextMatch', () => {
  it.each([
    ['fulltext', 'FULL disk', 'Disk /dev/sda1 is full', true],
    ['fulltext', 'ful', 'Disk is full', false],
    ['fulltext', 'sda1/dev', 'Disk /dev/sda1', true],
    ['fulltext', '"is full"', 'Disk is full', true],
    ['fulltext', '"is full"', 'Disk is: FULL!', true],
    ['fulltext', '"full is"', 'Disk is full', false],
    ['fulltext', 'GRÖSSE', 'die grösse', true],
    ['fulltext', '=>', 'a => b', true],
    ['fulltext', '=>', 'a b', false],
    ['fulltext', '', 'anything', true],
    ['substring', 'K IS F', 'Disk is full', true],
    ['substring', '%', 'Disk is full', false],
  ] as const)('%s %j on %j is %s', (mode, query, message, isMatch) => {
    expect(compileTextMatch(mode, query)(message)).toBe(isMatch);
  });

  it('finds every message by its own words in another order and letter case', () => {
    fc.assert(
      fc.property(fc.array(fc.stringMatching(/^[a-zäöü0-9]{1,8}$/), { minLength: 1 }), (words) => {
        const query = words.toReversed().join(' ').toUpperCase();
        fc.pre(query.toLowerCase().length === words.join(' ').length);
        expect(compileTextMatch('fulltext', query)(`${words.join(', ')}.`)).toBe(true);
      }),
    );
  });
});
