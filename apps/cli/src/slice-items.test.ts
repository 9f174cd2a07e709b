import fc from 'fast-check';
import { expect, it } from 'vitest';
import { sliceArrayItems } from './slice-items.ts';

it('the items cut out are the items parsed, wherever the key stands', () => {
  fc.assert(
    fc.property(fc.array(fc.jsonValue()), fc.jsonValue(), fc.constantFrom(0, 1, 2), (logs, other, indent) => {
      const text = JSON.stringify({ a: other, b: 'logs', c: { logs: [1] }, logs, z: [other] }, null, indent);
      expect(sliceArrayItems(text, 'logs').map((item) => JSON.parse(item) as unknown)).toEqual(
        JSON.parse(JSON.stringify(logs)),
      );
    }),
  );
});

it('big integers keep their digits', () => {
  expect(sliceArrayItems('{"logs":[{"n":12345678901234567890}],"total":1}', 'logs')).toEqual([
    '{"n":12345678901234567890}',
  ]);
});
