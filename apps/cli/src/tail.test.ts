import type { ServerResponse } from 'node:http';
import { describe, expect, it } from 'vitest';
import type { Connection } from './config.ts';
import { answerJson, startFakeApi } from './fake-api.test-support.ts';
import { tailLogs } from './tail.ts';
import { arrivalOf } from './tail-arrival.ts';

function entryId(offset: number, timeMs = 1_763_730_721_000): string {
  const low = ((2n << 62n) | (1n << 54n) | (BigInt(offset) << 6n)).toString(16);
  const hex = `${timeMs.toString(16).padStart(12, '0')}8001${low}`;
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

const entry = (offset: number): object => ({ id: entryId(offset), message: `m${offset}` });
const LIVE = ': live\n\n';
const event = (offset: number): string =>
  `event: log\nid: ${entryId(offset)}\ndata: ${JSON.stringify(entry(offset))}\n\n`;

function openStream(response: ServerResponse, text: string): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(`retry: 50\n\n${text}`);
}

/** Tails until `count` entries were printed; fails by the test's own time limit. */
async function tailUntil(
  connection: Connection,
  count: number,
  options: { historyMax: number; silenceMaxMs?: number },
): Promise<{ messages: string[]; notices: string[] }> {
  const stop = new AbortController();
  const messages: string[] = [];
  const notices: string[] = [];
  const writeEntry = (json: string): void => {
    messages.push((JSON.parse(json) as { message: string }).message);
    if (messages.length >= count) stop.abort();
  };
  await tailLogs(
    connection,
    new URLSearchParams(),
    options,
    { writeEntry, writeNotice: (text) => notices.push(text) },
    stop.signal,
  );
  return { messages, notices };
}

describe('tail', () => {
  it('history and stream meet without a seam: it resumes after the entry that arrived last and repeats none; what comes before `live` is history', async () => {
    await using api = await startFakeApi((seen, response) => {
      // Newest by time first; number 5 arrived last.
      if (seen.url.pathname.endsWith('/logs'))
        answerJson(response, 200, { logs: [4, 5, 3].map(entry), total: 3, totalRelation: 'eq' });
      else
        openStream(
          response,
          `${[5, 6, 7].map(event).join('')}: heartbeat\n\n${LIVE}${[8, 9].map(event).join('')}`,
        );
    });
    const { messages } = await tailUntil(api.connection, 5, { historyMax: 3 });
    expect(messages).toEqual(['m5', 'm6', 'm7', 'm8', 'm9']);
    expect(api.seen[1]?.headers['last-event-id']).toBe(entryId(5));
  });

  it('after a cut it comes back with the id of the last entry, and does so again and again', async () => {
    let connections = 0;
    await using api = await startFakeApi((_seen, response) => {
      connections++;
      openStream(response, event(connections));
      response.end();
    });
    const { messages } = await tailUntil(api.connection, 4, { historyMax: 0 });
    expect(messages).toEqual(['m1', 'm2', 'm3', 'm4']);
    expect(api.seen.map((seen) => seen.headers['last-event-id'])).toEqual([
      undefined,
      entryId(1),
      entryId(2),
      entryId(3),
    ]);
  });

  it('a stream without heartbeat is left and opened again', async () => {
    let connections = 0;
    await using api = await startFakeApi((_seen, response) => openStream(response, event(++connections)));
    const { messages, notices } = await tailUntil(api.connection, 2, { historyMax: 0, silenceMaxMs: 150 });
    expect(messages).toEqual(['m1', 'm2']);
    expect(notices).toHaveLength(1);
  });

  it('a gap is said; one at the very start is filled from the search instead', async () => {
    const gap = 'event: gap\ndata: {"from":null,"to":null,"dropped":null}\n\n';
    let searches = 0;
    await using api = await startFakeApi((seen, response) => {
      const logs = ++searches === 1 ? [1] : [2, 1];
      if (seen.url.pathname.endsWith('/logs'))
        answerJson(response, 200, { logs: logs.map(entry), total: 1, totalRelation: 'eq' });
      else openStream(response, `${gap}${event(2)}${LIVE}${event(3)}${gap}${event(4)}`);
    });
    const { messages, notices } = await tailUntil(api.connection, 4, { historyMax: 10 });
    expect(messages).toEqual(['m1', 'm2', 'm3', 'm4']);
    expect(notices).toEqual(['gap in the stream: some entries are missing here']);
  });

  it('a refused key is an error with exit code 3, not a reason to reconnect', async () => {
    await using api = await startFakeApi((_seen, response) =>
      answerJson(response, 401, { error: 'unknown key', code: 'INVALID_API_KEY' }),
    );
    await expect(tailUntil(api.connection, 1, { historyMax: 0 })).rejects.toMatchObject({ exitCode: 3 });
    expect(api.seen).toHaveLength(1);
  });
});

it('arrival is epoch and offset of the id, whatever its time', () => {
  expect(arrivalOf(entryId(7, 1))).toBe((1n << 48n) | 7n);
  expect(arrivalOf(entryId(8, 1))).toBeGreaterThan(arrivalOf(entryId(7, 2_000_000_000_000)));
  expect(arrivalOf('00000000-0000-7000-8000-000000000000')).toBe(-1n);
});
