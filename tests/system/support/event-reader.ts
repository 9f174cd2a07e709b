import { setTimeout as delay } from 'node:timers/promises';

const RECONNECT_PAUSE_MS = 100;

export type StreamEvent = { event: string; id: string | undefined; data: string };

/**
 * Reads the live tail as a browser's EventSource does: it comes back with the id of the last event whenever the
 * connection ends.
 */
export class EventReader implements AsyncDisposable {
  readonly events: StreamEvent[] = [];
  connections = 0;
  isConnected = false;
  readonly #url: string;
  readonly #apiKey: string;
  readonly #stop = new AbortController();
  readonly #work: Promise<void>;
  #lastId: string | undefined;
  #text = '';

  constructor(options: { url: string; apiKey: string }) {
    this.#url = `${options.url}/api/v1/logs/stream`;
    this.#apiKey = options.apiKey;
    this.#work = this.#run();
  }

  get logs(): StreamEvent[] {
    return this.events.filter(({ event }) => event === 'log');
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.#readOnce();
      } catch {
        // The connection ended; whatever the reason, an EventSource comes back.
      }
      if (!this.#stop.signal.aborted) await delay(RECONNECT_PAUSE_MS);
    }
  }

  async #readOnce(): Promise<void> {
    const headers: Record<string, string> = { 'X-API-Key': this.#apiKey, Accept: 'text/event-stream' };
    if (this.#lastId !== undefined) headers['Last-Event-ID'] = this.#lastId;
    const answer = await fetch(this.#url, { headers, signal: this.#stop.signal });
    if (answer.status !== 200 || answer.body === null) throw new Error(`expected 200, got ${answer.status}`);
    this.connections += 1;
    this.isConnected = true;
    // What was cut off in the middle of an event is sent again.
    this.#text = '';
    try {
      for await (const text of answer.body.pipeThrough(new TextDecoderStream())) this.#take(text);
    } finally {
      this.isConnected = false;
    }
  }

  #take(text: string): void {
    this.#text += text;
    const blocks = this.#text.split('\n\n');
    this.#text = blocks.pop() ?? '';
    for (const block of blocks) {
      const event = parseEvent(block);
      if (event === undefined) continue;
      this.#lastId = event.id ?? this.#lastId;
      this.events.push(event);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#work;
  }
}

/** One event's lines; undefined for a comment or a bare `retry:`. */
export function parseEvent(block: string): StreamEvent | undefined {
  const event: StreamEvent = { event: 'message', id: undefined, data: '' };
  for (const line of block.split('\n')) {
    const [, field, value = ''] = /^([a-z]+): ?(.*)$/.exec(line) ?? [];
    if (field === 'event') event.event = value;
    else if (field === 'id') event.id = value;
    else if (field === 'data') event.data += value;
  }
  return event.data === '' ? undefined : event;
}
