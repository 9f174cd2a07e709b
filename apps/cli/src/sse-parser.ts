/** An event of the stream; `id` is the last one seen, as the format asks. A comment comes as event `:`. */
export type SseEvent = { event: string; data: string; id: string };

const EVENT_CHARS_MAX = 4 * 1024 * 1024;

/**
 * Server-Sent Events from text chunks cut anywhere (WHATWG HTML §9.2.6): LF, CRLF and CR line ends,
 * comments, several data lines, a leading BOM. One event is at most 4 M characters; more throws.
 */
export class SseParser {
  #pending = '';
  #event = '';
  #data: string[] = [];
  #dataChars = 0;
  #id = '';
  #retryMs: number | undefined;
  #isStart = true;

  /** The server's last `retry:` in ms. */
  get retryMs(): number | undefined {
    return this.#retryMs;
  }

  /** Takes the next chunk and returns the events that it completed. */
  push(chunk: string): SseEvent[] {
    this.#pending += this.#isStart && chunk.startsWith('\uFEFF') ? chunk.slice(1) : chunk;
    if (chunk !== '') this.#isStart = false;
    const events: SseEvent[] = [];
    let start = 0;
    for (;;) {
      const end = findLineEnd(this.#pending, start);
      if (end === undefined) break;
      this.#readLine(this.#pending.slice(start, end.at), events);
      start = end.next;
    }
    this.#pending = this.#pending.slice(start);
    if (this.#pending.length + this.#dataChars > EVENT_CHARS_MAX) {
      throw new RangeError(`an event of the stream is longer than ${EVENT_CHARS_MAX} characters`);
    }
    return events;
  }

  #readLine(line: string, events: SseEvent[]): void {
    if (line === '') {
      if (this.#data.length > 0) {
        events.push({ event: this.#event || 'message', data: this.#data.join('\n'), id: this.#id });
      }
      this.#event = '';
      this.#data = [];
      this.#dataChars = 0;
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) {
      events.push({ event: ':', data: line.slice(1).trim(), id: this.#id });
      return;
    }
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
    if (field === 'event') this.#event = value;
    else if (field === 'id' && !value.includes('\0')) this.#id = value;
    else if (field === 'retry' && /^\d+$/.test(value)) this.#retryMs = Number(value);
    else if (field === 'data') {
      this.#data.push(value);
      this.#dataChars += value.length;
    }
  }
}

function findLineEnd(text: string, from: number): { at: number; next: number } | undefined {
  for (let at = from; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === 10) return { at, next: at + 1 };
    if (code === 13) {
      // A CR at the end of a chunk may be the first half of CRLF: wait for the next one.
      if (at + 1 === text.length) return undefined;
      return { at, next: text.charCodeAt(at + 1) === 10 ? at + 2 : at + 1 };
    }
  }
  return undefined;
}
