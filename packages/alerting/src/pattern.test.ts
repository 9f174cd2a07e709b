import { describe, expect, it } from 'vitest';
import { checkPattern } from './pattern.ts';

describe('checkPattern', () => {
  it('accepts RE2 syntax', () => {
    expect(['a+b', '(?i)x', '(?P<n>\\pL)', '[[:alpha:]]', '\\bx\\b', 'a{400}'].map(checkPattern)).toEqual(
      Array.from({ length: 6 }, () => undefined),
    );
  });

  it.each(['(', 'a{2,1}', '(?=x)', '(?<!x)', '\\1', 'a{1001}', '*'])('refuses %s and says why', (pattern) => {
    expect(checkPattern(pattern)).toMatch(/^expected RE2 syntax: ./);
  });

  it('refuses a pattern that is small to write and large to run', () => {
    expect(checkPattern('a{900}b{900}c{900}')).toMatch(/^expected a smaller pattern: \d+ steps of 500$/);
  });
});
