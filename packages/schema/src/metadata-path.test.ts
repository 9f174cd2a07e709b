import { describe, expect, it } from 'vitest';
import { parseMetadata, readMetadataValues, splitMetadataPath } from './metadata-path.ts';

const read = (json: string, path: string): unknown[] =>
  readMetadataValues(parseMetadata(json), splitMetadataPath(path));

describe('metadata', () => {
  it.each([
    ['9007199254740991', 9007199254740991],
    ['9007199254740993', '9007199254740993'],
    ['-12345678901234567890123', '-12345678901234567890123'],
    ['1e400', '1e400'],
    ['-1e400', '-1e400'],
    ['1e+21', 1e21],
    ['9007199254740993.0', 9007199254740992],
    ['0.1234567890123456789', 0.12345678901234568],
    ['5', 5],
    ['"12345678901234567890123"', '12345678901234567890123'],
  ])('with the number %s holds %j', (number, value) => {
    expect(parseMetadata(`{"a":[${number}]}`)).toEqual({ a: [value] });
  });

  it.each([
    ['{"a":{"b":1},"a.b":2}', 'a.b', [2, 1]],
    ['{"a":{"b":1}}', 'a.b', [1]],
    ['{"a":null}', 'a', [null]],
    ['{"a":[{"b":1}],"x":["y"]}', 'a.0.b', []],
    ['{"a":"text"}', 'a.length', []],
    ['{}', 'toString', []],
    ['{"__proto__":{"a":1}}', '__proto__.a', [1]],
    ['{"":{"":1}}', '.', [1]],
    ['{"a":1}', `a${'.a'.repeat(40)}`, []],
  ])('of %s at %s is %j', (json, path, values) => {
    expect(read(json, path)).toEqual(values);
  });
});
