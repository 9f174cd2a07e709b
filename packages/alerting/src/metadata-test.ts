import { readMetadataValues, splitMetadataPath } from '@logpond/schema/metadata-path';
import { compareNumber, compileText, readJsonNumber } from './text-test.ts';
import type { Question } from './text-test.ts';

/**
 * A question, with its negation, asked of the parsed metadata of an entry (metadata-path.ts). The path is read as
 * nested keys and as one literal key with dots; one of both that answers yes is enough.
 *
 * Equality: strings by their text, integers by their digits, other numbers by value, true, false and null by name.
 * For the text operators numbers and true and false are the texts that name them. Numbers are compared with numbers
 * and with texts that wholly are one. An array or object only exists; null does not even that.
 */
export function compileMetadata(path: string, question: Question): (metadata: unknown) => boolean {
  const keyPaths = splitMetadataPath(path);
  const test = compileValue(question);
  return (metadata) => readMetadataValues(metadata, keyPaths).some(test) !== question.isNegated;
}

function compileValue(question: Question): (value: unknown) => boolean {
  const { operator, texts, bound } = question;
  switch (operator) {
    case 'exists':
      return (value) => value !== null;
    case 'equals':
    case 'in':
      return compileEquality(texts);
    case 'gt':
    case 'gte':
    case 'lt':
    case 'lte':
      return (value) => compareNumber(operator, readNumber(value), bound);
    case 'contains':
    case 'starts_with':
    case 'regex': {
      const { of, test } = compileText(question);
      return (value) => {
        const text = readText(value);
        return text !== undefined && test(of === 'lower' ? text.toLowerCase() : text);
      };
    }
  }
}

function compileEquality(texts: readonly string[]): (value: unknown) => boolean {
  const wanted = new Set(texts);
  const numbers = new Set(texts.map(readJsonNumber).filter((number) => number !== undefined));
  return (value) => {
    if (typeof value === 'string') return wanted.has(value);
    if (typeof value === 'number' && !Number.isSafeInteger(value)) return numbers.has(value);
    return (value === null || typeof value !== 'object') && wanted.has(String(value));
  };
}

function readNumber(value: unknown): number | undefined {
  if (typeof value === 'number') return value;
  return typeof value === 'string' ? readJsonNumber(value) : undefined;
}

/** Numbers as ClickHouse writes them, which differs from here in the sign of great exponents only. */
function readText(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  if (typeof value === 'number') return String(value).replace('e+', 'e');
  return typeof value === 'boolean' ? String(value) : undefined;
}
