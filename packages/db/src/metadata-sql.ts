import { splitMetadataPath } from '@logpond/schema/metadata-path';
import type { SqlBindings } from './sql-bindings.ts';

const JSON_NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

/**
 * Metadata that the engine's parser takes. It refuses a whole document in which one number is beyond 64 bits or every
 * double; such numbers are put in quotes there, as packages/schema/src/metadata-path.ts takes them for texts. What
 * precedes a number is taken in whole strings, and what follows the last one at once, so that nothing inside a string
 * is touched. Not found are shorter numbers that only their digits and their exponent together take beyond every double,
 * such as 10e308: a document with one matches nothing. The space gives that rest something to be, and what it was then given in quotes, nothing, is cut off.
 */
const LONG_NUMBER = String.raw`-?[0-9]{19,}(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|-?[1-9][0-9]*(?:\\.[0-9]+)?[eE]\\+?(?:309|3[1-9][0-9]|[4-9][0-9]{2}|[0-9]{4,})`;
const BEFORE_NUMBER = String.raw`(?:(?:"(?:[^"\\\\]|\\\\.)*"|[^"])*?[\\[:,\\s])??`;
const LONG_NUMBERS_QUOTED = String.raw`left(replaceRegexpAll(concat(metadata, ' '),
  '(${BEFORE_NUMBER})(${LONG_NUMBER})(\\s*[,\\]}])|((?s:.)+)', '\\1\\4"\\2"\\3'), -2)`;
export const METADATA = `if(match(metadata, '[0-9]{19}|[0-9][eE]\\\\+?[0-9]{3}') AND NOT isValidJSON(metadata),
  ${LONG_NUMBERS_QUOTED}, metadata)`;

/**
 * A condition: the value at `path` is one of `values`. The path is tried as nested keys and as one literal
 * key with dots. Strings compare as their text, integers as their digits, other numbers by value, and
 * `true`, `false` and `null` by name; an array or object compares as its compact JSON text.
 */
export function matchMetadata(bindings: SqlBindings, path: string, values: readonly string[]): string {
  const texts = bindings.bind('Array(String)', values);
  const floats = values
    .filter((value) => JSON_NUMBER.test(value))
    .map(Number)
    .filter(Number.isFinite);
  const boundFloats = floats.length === 0 ? undefined : bindings.bind('Array(Float64)', floats);
  const conditions = splitMetadataPath(path).flatMap((keys) => {
    const boundPath = keys.map((key) => bindings.bind('String', key)).join(', ');
    return compareValue(boundPath, texts, boundFloats, values.includes('null'));
  });
  return `(${conditions.join(' OR ')})`;
}

function compareValue(
  path: string,
  texts: string,
  floats: string | undefined,
  isNullWanted: boolean,
): string[] {
  const conditions = [`JSONExtract(${METADATA}, ${path}, 'Nullable(String)') IN ${texts}`];
  if (floats !== undefined) {
    conditions.push(
      `(JSONType(${METADATA}, ${path}) = 'Double' AND JSONExtractFloat(${METADATA}, ${path}) IN ${floats})`,
    );
  }
  if (isNullWanted) {
    conditions.push(`(JSONHas(${METADATA}, ${path}) AND JSONType(${METADATA}, ${path}) = 'Null')`);
  }
  return conditions;
}
