import { describe, expect, it } from 'vitest';
import { checkPattern } from './pattern.ts';

describe('checkPattern', () => {
  it('accepts RE2 syntax', () => {
    expect(['a+b', '(?i)x', '(?P<n>\\pL)', '[[:alpha:]]', '\\bx\\b', 'a{148}'].map(checkPattern)).toEqual(
      Array.from({ length: 6 }, () => undefined),
    );
  });

  it.each(['(', 'a{2,1}', '(?=x)', '(?<!x)', '\\1', 'a{1001}', '*'])('refuses %s and says why', (pattern) => {
    expect(checkPattern(pattern)).toMatch(/^expected RE2 syntax: ./);
  });

  it.each(['a{149}', 'a{900}b{900}c{900}', '[ab].{50}[ab].{50}[ab].{50}[xy]'])(
    'refuses %s, small to write and large to run',
    (pattern) => {
      expect(checkPattern(pattern)).toMatch(/^expected a smaller pattern: \d+ steps of 150$/);
    },
  );
});
