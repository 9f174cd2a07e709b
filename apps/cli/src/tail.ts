import type { ApiAnswer } from './api-request.ts';
import { isRetryable, NetworkError, openRequest, readAnswer, toRefusal } from './api-request.ts';
import { nextDelayMs, pause } from './back-off.ts';
import { CliError } from './cli-error.ts';
import type { Connection } from './config.ts';
import { searchPage } from './search.ts';
import type { SseEvent } from './sse-parser.ts';
import { SseParser } from './sse-parser.ts';
import { arrivalOf, newestOf, readEntryId } from './tail-arrival.ts';

const CONNECT_TIMEOUT_MS = 15_000;
// The server promises a heartbeat each 15 s; three missed ones are a dead connection.
const SILENCE_MAX_MS = 45_000;

// An entry can be searched this long after its 200 (the promise is 1 s at p99).
const INDEX_LAG_MS = 1000;

/** How many times the history may be held before it is cut down to what is shown. */
const HELD_PER_ENTRY = 4;

export type TailOutput = { writeEntry: (entryJson: string) => void; writeNotice: (sentence: string) => void };

type Follow = {
  connection: Connection;
  query: URLSearchParams;
  output: TailOutput;
  signal: AbortSignal;
  historyMax: number;
  /** Entries from before the start, until the stream says that it is live: the newest `historyMax` are shown. */
  held: Map<string, string> | undefined;
  /** Ids of the history, which the stream may bring again. */
  shown: Set<string>;
  lastEventId: string;
  hasConnected: boolean;
  silenceMaxMs: number;
};

/**
 * Prints the newest `historyMax` entries, then follows the stream until the signal is aborted,
 * reconnecting for ever. No seam: the stream is opened after the entry of the history that arrived
 * last, so entries that were on their way into the index come from the stream. Until the stream says
 * that it is live, what it brings is history too. Throws CliError when
 * the very first contact fails or the service refuses.
 */
export async function tailLogs(
  connection: Connection,
  query: URLSearchParams,
  options: { historyMax: number; silenceMaxMs?: number },
  output: TailOutput,
  signal: AbortSignal,
): Promise<void> {
  const { historyMax, silenceMaxMs = SILENCE_MAX_MS } = options;
  const follow: Follow = {
    connection,
    query,
    output,
    signal,
    historyMax,
    silenceMaxMs,
    held: historyMax > 0 ? new Map() : undefined,
    shown: new Set(),
    lastEventId: '',
    hasConnected: false,
  };
  try {
    if (historyMax > 0) await findHistory(follow);
    await followForever(follow);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** Holds what the search knows; remembers the entry that arrived last. */
async function findHistory(follow: Follow): Promise<void> {
  const query = new URLSearchParams(follow.query);
  query.set('limit', String(follow.historyMax));
  const { entries } = await searchPage(follow.connection, query, follow.signal);
  let lastArrival = follow.lastEventId === '' ? -1n : arrivalOf(follow.lastEventId);
  for (const entry of entries) {
    const id = readEntryId(entry);
    hold(follow, id, entry);
    if (arrivalOf(id) > lastArrival) {
      lastArrival = arrivalOf(id);
      follow.lastEventId = id;
    }
  }
}

function hold(follow: Follow, id: string, entry: string): void {
  follow.held?.set(id, entry);
  // Memory for a long replay is bounded; sorting each time would not be.
  if (follow.held && follow.held.size > HELD_PER_ENTRY * (follow.historyMax + 10)) {
    follow.held = new Map(newestOf(follow.held, follow.historyMax));
  }
}

/** Prints the history; from now on every entry is printed as it comes. */
function goLive(follow: Follow): void {
  if (!follow.held) return;
  for (const [id, entry] of newestOf(follow.held, follow.historyMax)) {
    follow.shown.add(id);
    follow.output.writeEntry(entry);
  }
  follow.held = undefined;
}

async function followForever(follow: Follow): Promise<void> {
  let retryMs: number | undefined;
  for (let attempt = 0; ; attempt++) {
    follow.signal.throwIfAborted();
    const parser = new SseParser();
    let asked: number | undefined;
    try {
      const refused = await followOnce(follow, parser, () => (attempt = 0));
      if (refused && !isRetryable(refused.status)) throw toRefusal(follow.connection, refused);
      asked = refused?.retryAfterMs;
      if (refused) follow.output.writeNotice(`the service answered ${refused.status}; trying again`);
    } catch (error) {
      follow.signal.throwIfAborted();
      if (error instanceof CliError && !(error instanceof NetworkError)) throw error;
      if (!follow.hasConnected)
        throw error instanceof CliError ? error : new NetworkError(follow.connection, error);
      if (attempt === 0) follow.output.writeNotice('the connection is gone; reconnecting');
    }
    retryMs = parser.retryMs ?? retryMs;
    await pause(nextDelayMs(attempt, asked ?? (attempt === 0 ? retryMs : undefined)), follow.signal);
  }
}

/** One connection until it ends; an answer that is no stream is returned. */
async function followOnce(
  follow: Follow,
  parser: SseParser,
  onAlive: () => void,
): Promise<ApiAnswer | undefined> {
  const silence = new AbortController();
  const signal = AbortSignal.any([follow.signal, silence.signal]);
  const watchdog = startWatchdog(silence);
  try {
    watchdog.restart(CONNECT_TIMEOUT_MS);
    const headers: Record<string, string> = { Accept: 'text/event-stream' };
    if (follow.lastEventId !== '') headers['Last-Event-ID'] = follow.lastEventId;
    const response = await openRequest(
      follow.connection,
      { path: '/logs/stream', query: follow.query, headers },
      signal,
    );
    if (response.status !== 200 || !response.body) return await readAnswer(response);
    const isFirst = !follow.hasConnected;
    follow.hasConnected = true;
    const decoder = new TextDecoder();
    let count = 0;
    if (isFirst && follow.historyMax > 0 && follow.lastEventId === '') {
      // There was no entry to resume after: wait until what was on its way before the stream opened can be searched.
      await pause(INDEX_LAG_MS, signal);
      await findHistory(follow);
    }
    watchdog.restart(follow.silenceMaxMs);
    for await (const chunk of response.body) {
      watchdog.restart(follow.silenceMaxMs);
      onAlive();
      for (const event of parser.push(decoder.decode(chunk as Uint8Array, { stream: true }))) {
        await showEvent(follow, event, isFirst && count === 0);
        if (event.event !== ':') count++;
      }
    }
    return undefined;
  } finally {
    watchdog.stop();
    silence.abort();
  }
}

async function showEvent(follow: Follow, event: SseEvent, isFirstOfAll: boolean): Promise<void> {
  if (event.event === ':') {
    if (event.data === 'live') goLive(follow);
  } else if (event.event === 'log') {
    const id = event.id || readEntryId(event.data);
    follow.lastEventId = id;
    if (follow.held) hold(follow, id, event.data);
    else if (!follow.shown.delete(id)) follow.output.writeEntry(event.data);
  } else if (event.event === 'gap') {
    // The history's last entry is older than the stream reaches back: the search has what lies between.
    if (isFirstOfAll && follow.held) await findHistory(follow);
    else follow.output.writeNotice(describeGap(event.data));
  }
}

/** What the stream could not bring, in words. */
function describeGap(data: string): string {
  const gap: unknown = JSON.parse(data);
  const read = (name: string): string | undefined => {
    const value: unknown = typeof gap === 'object' && gap !== null ? Reflect.get(gap, name) : undefined;
    return typeof value === 'string' || typeof value === 'number' ? String(value) : undefined;
  };
  const dropped = read('dropped');
  const from = read('from');
  const to = read('to');
  return (
    `gap in the stream: ${dropped === undefined ? 'some entries are' : `${dropped} entries are`} missing here` +
    (from === undefined ? '' : `, from ${from}`) +
    (to === undefined ? '' : ` to ${to}`)
  );
}

function startWatchdog(controller: AbortController): {
  restart: (limitMs: number) => void;
  stop: () => void;
} {
  let timer: NodeJS.Timeout | undefined;
  const stop = (): void => clearTimeout(timer);
  const restart = (limitMs: number): void => {
    stop();
    timer = setTimeout(() => controller.abort(new Error(`nothing came for ${limitMs / 1000} s`)), limitMs);
  };
  return { restart, stop };
}
