import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { answerJson, startFakeApi } from './fake-api.test-support.ts';
import { resolveTime, toQuery } from './log-filter.ts';
import { renderEntry } from './render-entry.ts';
import { countEntries, searchPages } from './search.ts';

const NOW_MS = Date.parse('2026-11-21T14:00:00Z');
const signal = new AbortController().signal;

describe('search', () => {
  it('pages by cursor until the limit and passes entries on as they were written', async () => {
    await using api = await startFakeApi((seen, response) => {
      const count = Number(seen.url.searchParams.get('limit'));
      const logs = Array(count).fill('{"n":12345678901234567890}').join(',');
      response.end(`{"logs":[${logs}],"total":9,"totalRelation":"gte","nextCursor":"c"}`);
    });
    const pages: string[][] = [];
    for await (const page of searchPages(api.connection, new URLSearchParams({ q: 'a b' }), 1500, signal))
      pages.push(page);
    expect(pages.map((page) => page.length)).toEqual([1000, 500]);
    expect(pages[0]?.[0]).toBe('{"n":12345678901234567890}');
    expect(api.seen.map((seen) => seen.url.searchParams.get('cursor'))).toEqual([null, 'c']);
  });

  it('counts exactly, beyond 10,000 with the buckets, of which there are never too many', async () => {
    await using api = await startFakeApi((seen, response) => {
      if (seen.url.pathname.endsWith('/aggregated'))
        answerJson(response, 200, { timeseries: [{ total: 20_000 }, { total: 5 }] });
      else
        answerJson(response, 200, {
          logs: [],
          total: seen.url.searchParams.get('q') ? 7 : 10_000,
          totalRelation: seen.url.searchParams.get('q') ? 'eq' : 'gte',
        });
    });
    expect(await countEntries(api.connection, new URLSearchParams({ q: 'x' }), NOW_MS, signal)).toBe(7);
    expect(await countEntries(api.connection, new URLSearchParams(), NOW_MS, signal)).toBe(20_005);
    expect(
      await countEntries(
        api.connection,
        new URLSearchParams({ from: '2026-11-21T13:00:00Z' }),
        NOW_MS,
        signal,
      ),
    ).toBe(20_005);
    await countEntries(api.connection, new URLSearchParams({ from: '1970-01-01T00:00:00Z' }), NOW_MS, signal);
    const last = api.seen.at(-1)?.url.searchParams;
    expect(last?.get('from')).toBe(new Date(NOW_MS - 3650 * 86_400_000).toISOString());
    const intervals = api.seen
      .filter((seen) => seen.url.pathname.endsWith('/aggregated'))
      .map((seen) => seen.url.searchParams.get('interval'));
    expect(intervals).toEqual(['1d', '90s', '1d']);
  });

  it('an overloaded service is asked again, a refusal is not', async () => {
    let count = 0;
    await using api = await startFakeApi((_seen, response) => {
      if (++count === 1)
        answerJson(response, 503, { error: 'down', code: 'UNAVAILABLE' }, { 'retry-after': '0' });
      else answerJson(response, 400, { error: 'bad level', code: 'VALIDATION_ERROR' });
    });
    await expect(countEntries(api.connection, new URLSearchParams(), NOW_MS, signal)).rejects.toMatchObject({
      exitCode: 2,
    });
    expect(count).toBe(2);
  });
});

it('Ctrl-C during a search ends the command with 130 and without a stack', async () => {
  const asked = Promise.withResolvers<void>();
  await using api = await startFakeApi(() => asked.resolve());
  const env = { LOGPOND_URL: api.connection.baseUrl, LOGPOND_API_KEY: 'lp_test' };
  const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts'), 'search'], { env });
  const errors: Buffer[] = [];
  child.stderr.on('data', (chunk: Buffer) => errors.push(chunk));
  await asked.promise;
  child.kill('SIGINT');
  expect(await once(child, 'close')).toEqual([130, null]);
  expect(Buffer.concat(errors).toString()).toBe('');
});

it('durations are times before now, anything else must be a time', () => {
  expect(resolveTime('15m', NOW_MS)).toBe('2026-11-21T13:45:00.000Z');
  expect(resolveTime('2026-11-20', NOW_MS)).toBe('2026-11-20T00:00:00Z');
  expect(() => resolveTime('yesterday', NOW_MS)).toThrow('yesterday');
});

it('filters become the parameters of the interface', () => {
  const filter = {
    words: ['a', 'b'],
    services: ['x', 'y'],
    levels: ['error'],
    fields: [['k', 'v']] as const,
    mode: 'regex',
    trace: 't',
  };
  expect(toQuery(filter, NOW_MS).toString()).toBe(
    'service=x&service=y&level=error&metadata.k=v&q=a+b&searchMode=regex&traceId=t',
  );
});

describe('lines for people', () => {
  const json = String.raw`{"id":"1","time":"t","service":"s","level":"warn","message":"a\u001b]0;x\u0007\nb","metadata":{"n":12345678901234567890,"s":"x y"}}`;

  it('show every field, and control characters never reach the terminal', () => {
    expect(renderEntry(json, false)).toBe(
      't WARN     s a\\x1b]0;x\\x07\n    b n=12345678901234567890 s="x y"',
    );
  });

  it('have colours only when asked', () => {
    expect(renderEntry(json, true)).toContain('\u001B[33mWARN');
    expect(renderEntry(json, false)).not.toContain('\u001B');
  });
});
