import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { Connection } from './config.ts';
import type { Seen } from './fake-api.test-support.ts';
import { answerJson, startFakeApi } from './fake-api.test-support.ts';
import type { SendOptions, SendReport } from './send.ts';
import { exitCodeOf, formatReport, sendLines } from './send.ts';
import type { OutgoingEntry } from './outgoing-entry.ts';

const OPTIONS: SendOptions = {
  format: 'auto',
  service: undefined,
  level: 'info',
  fields: [],
  isFromNow: false,
  isUtc: true,
  keepsTime: false,
  concurrency: 4,
  retryForMs: 20_000,
};

function send(
  connection: Connection,
  text: string,
  options: Partial<SendOptions> = {},
  interrupt = new AbortController().signal,
): Promise<SendReport> {
  const open = (): Readable => Readable.from([Buffer.from(text)]);
  const source = { name: 'test', service: 'test', initialTime: undefined, isFile: true, open };
  return sendLines(connection, [source], { ...OPTIONS, ...options }, interrupt);
}

function readLogs(seen: Seen): OutgoingEntry[] {
  return (JSON.parse(seen.body) as { logs: OutgoingEntry[] }).logs;
}

const receipt = (seen: Seen): object => ({
  received: readLogs(seen).length,
  timestamp: '2026-11-21T13:00:00.000Z',
});

describe('send', () => {
  it('every line arrives once, in batches of at most 1,000, gzipped, strict and with a key of its own', async () => {
    await using api = await startFakeApi((seen, response) => answerJson(response, 200, receipt(seen)));
    const lines = Array.from({ length: 3500 }, (_, index) => `line ${index}`);
    const report = await send(api.connection, lines.join('\n'));
    expect(
      api.seen
        .flatMap(readLogs)
        .map((entry) => entry.message)
        .toSorted(),
    ).toEqual(lines.toSorted());
    expect(api.seen.map((seen) => readLogs(seen).length).toSorted((a, b) => b - a)).toEqual([
      1000, 1000, 1000, 500,
    ]);
    expect(new Set(api.seen.map((seen) => seen.headers['idempotency-key'])).size).toBe(4);
    expect(api.seen[0]?.headers).toMatchObject({
      'x-api-key': 'lp_test',
      'content-encoding': 'gzip',
      prefer: 'handling=strict',
    });
    expect(report).toMatchObject({ linesRead: 3500, entries: 3500, sent: 3500, rejected: 0, retried: 0 });
    expect(exitCodeOf(report)).toBe(0);
  });

  it('a retry after 503, 429, 409 or a cut connection repeats the same bytes under the same key and waits for Retry-After', async () => {
    const atMs: number[] = [];
    await using api = await startFakeApi((seen, response) => {
      atMs.push(performance.now());
      if (atMs.length === 1)
        answerJson(
          response,
          503,
          { error: 'down', code: 'UNAVAILABLE', statusCode: 503 },
          { 'retry-after': '1' },
        );
      else if (atMs.length === 2) response.destroy();
      else if (atMs.length === 3) answerJson(response, 409, { code: 'CONFLICT' }, { 'retry-after': '0' });
      else answerJson(response, 200, receipt(seen));
    });
    const report = await send(api.connection, 'one\ntwo\n');
    expect(report).toMatchObject({ sent: 2, retried: 3, rejected: 0 });
    expect(new Set(api.seen.map((seen) => seen.headers['idempotency-key'])).size).toBe(1);
    expect(new Set(api.seen.map((seen) => seen.body)).size).toBe(1);
    expect((atMs[1] ?? 0) - (atMs[0] ?? 0)).toBeGreaterThanOrEqual(995);
  });

  it('lines outside the accepted time are sent again with the time of now and keep their own in metadata', async () => {
    const minTime = '2026-10-22T00:00:00.000Z';
    await using api = await startFakeApi((seen, response) => {
      const old = readLogs(seen).flatMap(({ time }, index) =>
        time !== undefined && time < minTime ? [index] : [],
      );
      const message = `expected a time between ${minTime} (the project's retention) and 2027-11-21T00:00:00.000Z, got "x"`;
      const details = old.slice(0, 20).map((index) => ({ index, path: 'time', message }));
      if (old.length > 0)
        answerJson(response, 400, { error: 'bad', code: 'VALIDATION_ERROR', statusCode: 400, details });
      else answerJson(response, 200, receipt(seen));
    });
    const lines = Array.from(
      { length: 100 },
      (_, index) => `20${index % 2 ? '26-11' : '20-01'}-01 00:00:00 line ${index}`,
    );
    const report = await send(api.connection, lines.join('\n'));
    expect(report).toMatchObject({ sent: 100, rejected: 0, redated: 50 });
    expect(api.seen).toHaveLength(2);
    expect(
      readLogs(api.seen[1] as Seen).filter(
        (entry) => entry.metadata['original_time'] === '2020-01-01T00:00:00.000Z',
      ),
    ).toHaveLength(50);
    expect(new Set(api.seen.map((seen) => seen.headers['idempotency-key'])).size).toBe(2);
    const kept = await send(api.connection, lines.join('\n'), { keepsTime: true });
    expect(kept).toMatchObject({ sent: 50, rejected: 50, redated: 0 });
    expect(exitCodeOf(kept)).toBe(1);
  });

  it('an entry that is refused is counted and its neighbours are stored', async () => {
    await using api = await startFakeApi((seen, response) => {
      const index = readLogs(seen).findIndex((entry) => entry.message === 'bad');
      const details = [{ index, path: 'message', message: 'expected better' }];
      if (index >= 0)
        answerJson(response, 400, { error: 'bad', code: 'VALIDATION_ERROR', statusCode: 400, details });
      else answerJson(response, 200, receipt(seen));
    });
    const report = await send(api.connection, 'a\nbad\nb\nbad');
    expect(report).toMatchObject({ sent: 2, rejected: 2 });
    expect(exitCodeOf(report)).toBe(1);
  });

  it('a batch that is too large is halved until it fits', async () => {
    await using api = await startFakeApi((seen, response) => {
      if (readLogs(seen).length > 3)
        answerJson(response, 413, { error: 'large', code: 'PAYLOAD_TOO_LARGE', statusCode: 413 });
      else answerJson(response, 200, receipt(seen));
    });
    expect(await send(api.connection, 'a\nb\nc\nd\ne\nf\ng\nh')).toMatchObject({ sent: 8, rejected: 0 });
  });

  it('a refused key ends it with exit code 3, an address where nothing listens too', async () => {
    await using api = await startFakeApi((_seen, response) =>
      answerJson(response, 401, { error: 'unknown key', code: 'INVALID_API_KEY' }),
    );
    const refused = await send(api.connection, 'a');
    expect(refused.failure?.message).toContain('unknown key');
    expect(exitCodeOf(refused)).toBe(3);
    const nobody = { ...api.connection };
    await api[Symbol.asyncDispose]();
    const report = await send(nobody, 'a\nb', { retryForMs: 300 });
    expect(exitCodeOf(report)).toBe(3);
    expect(formatReport(report)).toContain('NOT CONFIRMED 2');
  });

  it('after Ctrl-C what is in hand is still sent and counted', async () => {
    await using api = await startFakeApi((seen, response) => answerJson(response, 200, receipt(seen)));
    const interrupt = new AbortController();
    const { promise: wantsMore, resolve } = Promise.withResolvers<void>();
    const chunks = ['one\ntwo\npart'];
    const endless = new Readable({
      read() {
        const chunk = chunks.shift();
        if (chunk === undefined) setImmediate(resolve);
        else this.push(chunk);
      },
    });
    const source = {
      name: 'pipe',
      service: 'pipe',
      initialTime: undefined,
      isFile: false,
      open: () => endless,
    };
    const sending = sendLines(api.connection, [source], OPTIONS, interrupt.signal);
    // Aborted only once the reader asks for more, so both lines are read and the third is cut short.
    await wantsMore;
    interrupt.abort();
    const report = await sending;
    expect(report).toMatchObject({ entries: 3, sent: 3 });
  });

  it('a lone line from an open pipe is sent within the second', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    await using api = await startFakeApi((seen, response) => {
      answerJson(response, 200, receipt(seen));
      resolve();
    });
    const pipe = new Readable({ read() {} });
    pipe.push('lone\n');
    const source = { name: 'pipe', service: 'pipe', initialTime: undefined, isFile: false, open: () => pipe };
    const sending = sendLines(api.connection, [source], OPTIONS, new AbortController().signal);
    await promise;
    pipe.push(null);
    expect(await sending).toMatchObject({ sent: 1 });
  });
});
