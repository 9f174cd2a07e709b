import fc from 'fast-check';
import { expect, it } from 'vitest';
import { escapeHtml, toLine, toTime } from './mail-text.ts';

it.each([
  ['a header after a line end', 'x\r\nBcc: evil@example.com', 'x Bcc: evil@example.com'],
  ['a lone line feed', 'x\ny', 'x y'],
  ['NUL, ESC and C1', 'a\u0000b\u001b[31mc\u0085d', 'a b [31mc d'],
  ['separators of Unicode', 'a\u2028b\u2029c', 'a b c'],
  ['an override of the order', 'invoice\u202efdp.exe', 'invoicefdp.exe'],
  ['isolates and marks', '\u2066a\u2069\u200eb\u061c', 'ab'],
  ['what hides', 'pay\u200bpal\ufeff', 'paypal'],
  ['half a surrogate pair', 'a\ud800b', 'a\ufffdb'],
  ['joined emoji stay', '👩‍💻', '👩‍💻'],
])('a line loses its danger: %s', (_what, text, line) => {
  expect(toLine(text)).toBe(line);
});

it('is cut between characters', () => {
  expect(toLine('😀😀😀😀', 3)).toBe('😀😀…');
  expect(toLine('abc', 3)).toBe('abc');
  expect(Array.from(toLine('x'.repeat(10_000), 100))).toHaveLength(100);
});

it('whatever the text, a line holds no control character and nothing that reorders', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 60 }), (text) => {
      const line = toLine(text, 40);
      expect(line).not.toMatch(/[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/u);
      expect(line.isWellFormed()).toBe(true);
      expect(Array.from(line).length).toBeLessThanOrEqual(40);
    }),
  );
});

it('escapes what HTML would read', () => {
  expect(escapeHtml(`<a href="x" onclick='y'>&`)).toBe(
    '&lt;a href=&quot;x&quot; onclick=&#39;y&#39;&gt;&amp;',
  );
});

it('shows times in UTC', () => {
  expect(toTime(Date.UTC(2026, 10, 21, 19, 45, 1, 999))).toBe('2026-11-21 19:45:01 UTC');
});
