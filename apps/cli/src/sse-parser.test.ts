import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { SseEvent } from './sse-parser.ts';
import { SseParser } from './sse-parser.ts';

function parse(text: string, chunkChars: number): SseEvent[] {
  const parser = new SseParser();
  const events: SseEvent[] = [];
  for (let at = 0; at < text.length; at += chunkChars)
    events.push(...parser.push(text.slice(at, at + chunkChars)));
  return events;
}

it('chunks cut anywhere and every line end give the same events', () => {
  const event = fc.record({
    event: fc.constantFrom('log', 'gap'),
    data: fc.array(
      fc.string({ maxLength: 12 }).map((line) => line.replace(/[\r\n]/g, '')),
      { minLength: 1, maxLength: 3 },
    ),
    id: fc.stringMatching(/^[a-z0-9]{1,5}$/),
  });
  fc.assert(
    fc.property(
      fc.array(event),
      fc.constantFrom('\n', '\r\n', '\r'),
      fc.integer({ min: 1, max: 7 }),
      (events, end, size) => {
        const blocks = events.map(({ event: name, data, id }) =>
          [': heartbeat', `event: ${name}`, `id:${id}`, ...data.map((line) => `data: ${line}`), '', ''].join(
            end,
          ),
        );
        // A trailing comment, because a CR at the very end may still become CRLF.
        const expected = events.map(({ event: name, data, id }) => ({
          event: name,
          data: data.join('\n'),
          id,
        }));
        const parsed = parse(`\uFEFF${blocks.join('')}:${end}`, size);
        expect(parsed.filter(({ event: name }) => name !== ':')).toEqual(expected);
        const comments = parsed.filter(({ event: name }) => name === ':').map(({ data }) => data);
        // A comment that ends in CR may still be waiting for its LF.
        expect(comments.slice(0, events.length)).toEqual(events.map(() => 'heartbeat'));
      },
    ),
  );
});

it('retry is read, an unfinished event is not given out, an id stays until the next', () => {
  const parser = new SseParser();
  expect(parser.push('retry: 2500\nid: 7\ndata: a\n\ndata: b\n\ndata: c\n')).toEqual([
    { event: 'message', data: 'a', id: '7' },
    { event: 'message', data: 'b', id: '7' },
  ]);
  expect(parser.retryMs).toBe(2500);
});

it('an event without end is refused instead of filling the memory', () => {
  const parser = new SseParser();
  expect(() => {
    for (let count = 0; count < 100; count++) parser.push('x'.repeat(100_000));
  }).toThrow(/longer than/);
});
