import type { SqlBindings } from './sql-bindings.ts';

/** As deep as metadata can be; longer paths match nothing. */
const PATH_SEGMENTS_MAX = 32;
const JSON_NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

/**
 * The parser of the engine refuses a whole document in which one number is beyond 64 bits. Numbers of 19 and
 * more digits are therefore put in quotes before a second try; their digits then compare as text.
 */
const LONG_NUMBER = '[0-9]{19}';
const LONG_NUMBER_QUOTED = String.raw`replaceRegexpAll(metadata, '([:\\[,]\\s*)(-?[0-9]{19,}(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)', '\\1"\\2"')`;

/**
 * A condition: the value at `path` is one of `values`. The path is tried as nested keys and as one literal
 * key with dots. Strings compare as their text, integers as their digits, other numbers by value, and
 * `true`, `false` and `null` by name; an array or object compares as its compact JSON text.
 */
export function matchMetadata(bindings: SqlBindings, path: string, values: readonly string[]): string {
  const segments = path.split('.');
  const keyPaths = [[path]];
  if (segments.length > 1 && segments.length <= PATH_SEGMENTS_MAX) {
    keyPaths.push(segments);
  }
  const texts = bindings.bind('Array(String)', values);
  const floats = values.filter((value) => JSON_NUMBER.test(value)).map(Number);
  const boundFloats = floats.length === 0 ? undefined : bindings.bind('Array(Float64)', floats);
  const conditions = keyPaths.flatMap((keys) => {
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
  const text = (json: string): string => `JSONExtract(${json}, ${path}, 'Nullable(String)') IN ${texts}`;
  const conditions = [
    text('metadata'),
    `(match(metadata, '${LONG_NUMBER}') AND ${text(LONG_NUMBER_QUOTED)})`,
  ];
  if (floats !== undefined) {
    conditions.push(
      `(JSONType(metadata, ${path}) = 'Double' AND JSONExtractFloat(metadata, ${path}) IN ${floats})`,
    );
  }
  if (isNullWanted) {
    conditions.push(`(JSONHas(metadata, ${path}) AND JSONType(metadata, ${path}) = 'Null')`);
  }
  return conditions;
}
