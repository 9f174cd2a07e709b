import { RE2JS, RE2JSException } from 're2js';

/**
 * Instructions of a compiled pattern, as RE2 counts them: the price of one character where the fast automaton does
 * not apply. The longest message of 64 KB then takes about a quarter of a second at worst (measured).
 */
const PROGRAM_SIZE_MAX = 150;

/** As the search reads a pattern: RE2 syntax, `.` also stands for a line break. */
function compile(pattern: string): RE2JS | string {
  try {
    const regex = RE2JS.compile(pattern, RE2JS.DOTALL);
    const size = regex.programSize();
    return size <= PROGRAM_SIZE_MAX
      ? regex
      : `expected a smaller pattern: ${size} steps of ${PROGRAM_SIZE_MAX}`;
  } catch (error) {
    if (!(error instanceof RE2JSException)) throw error;
    return `expected RE2 syntax: ${error.message}`;
  }
}

/** What is wrong with a regular expression in a rule, or undefined. */
export function checkPattern(pattern: string): string | undefined {
  const regex = compile(pattern);
  return typeof regex === 'string' ? regex : undefined;
}

/** Whether a text holds a match, in time linear in it. A pattern that checkPattern refuses matches nothing. */
export function compilePattern(pattern: string): (text: string) => boolean {
  const regex = compile(pattern);
  return typeof regex === 'string' ? () => false : (text) => regex.test(text);
}
