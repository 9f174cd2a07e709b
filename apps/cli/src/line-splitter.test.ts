import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { RawLine } from './line-splitter.ts';
import { LineSplitter } from './line-splitter.ts';

function split(bytes: Buffer, chunkBytes: number): RawLine[] {
  const splitter = new LineSplitter();
  const lines: RawLine[] = [];
  for (let at = 0; at < bytes.length; at += chunkBytes)
    lines.push(...splitter.push(bytes.subarray(at, at + chunkBytes)));
  return [...lines, ...splitter.finish()];
}

it('chunks cut anywhere give the same lines', () => {
  const line = fc
    .string({ unit: 'grapheme', maxLength: 20 })
    .map((text) => text.replace(/[\r\n\uFEFF]/g, ''));
  fc.assert(
    fc.property(
      fc.array(line),
      fc.constantFrom('\n', '\r\n'),
      fc.boolean(),
      fc.integer({ min: 1, max: 9 }),
      (lines, end, isEnded, size) => {
        const isLastSeen = isEnded || lines.at(-1) !== '';
        const bytes = Buffer.from(lines.join(end) + (isEnded && lines.length > 0 ? end : ''));
        const expected = isLastSeen ? lines : lines.slice(0, -1);
        expect(split(bytes, size)).toEqual(expected.map((text) => ({ text, part: 0 })));
      },
    ),
  );
});

it('a BOM is dropped and bytes that are no UTF-8 become U+FFFD', () => {
  expect(split(Buffer.from([0xef, 0xbb, 0xbf, 0x61, 0xff, 0x0a]), 2)).toEqual([{ text: 'a\uFFFD', part: 0 }]);
});

it('a line beyond 1 MB comes in pieces between characters, and nothing of it is lost', () => {
  const text = 'é😀x'.repeat(400_000);
  const lines = split(Buffer.from(`${text}\nnext\n`), 65_537);
  expect(lines.at(-1)).toEqual({ text: 'next', part: 0 });
  const pieces = lines.slice(0, -1);
  expect(pieces.map((piece) => piece.part)).toEqual(pieces.map((_piece, index) => index + 1));
  expect(pieces.map((piece) => piece.text).join('') === text).toBe(true);
});
