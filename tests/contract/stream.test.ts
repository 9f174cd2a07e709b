import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { CallInit, ContractApi, TestTenant } from './contract-fixture.ts';

type StreamEvent = { event: string; id: string; data: string };

let api: ContractApi;
let mine: TestTenant;
let other: TestTenant;
beforeAll(async () => {
  api = await openContractApi({}, { hasWorker: true });
  mine = await api.createTenant('mine');
  other = await api.createTenant('other');
});
afterAll(async () => api[Symbol.asyncDispose]());

/** Reads a stream into events, as a browser would. */
class Reader implements AsyncDisposable {
  readonly events: StreamEvent[] = [];
  readonly comments: string[] = [];
  text = '';
  isOver = false;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;

  constructor(response: Response) {
    if (response.body === null) throw new Error('expected a stream');
    this.#reader = response.body.getReader();
    void this.#read().catch(() => {});
  }

  async #read(): Promise<void> {
    const decoder = new TextDecoder();
    let rest = '';
    for (;;) {
      const { done, value } = await this.#reader.read();
      if (done) break;
      const text = decoder.decode(value, { stream: true });
      this.text += text;
      const blocks = (rest + text).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) this.#take(block);
    }
    this.isOver = true;
  }

  #take(block: string): void {
    const event = { event: 'message', id: '', data: '' };
    for (const line of block.split('\n')) {
      const colon = line.indexOf(':');
      const name = line.slice(0, colon);
      const value = line.slice(colon + 1).trim();
      if (name === '') this.comments.push(value);
      else if (name === 'event' || name === 'id') event[name] = value;
      else if (name === 'data') event.data += value;
    }
    if (event.data !== '') this.events.push(event);
  }

  messages(): string[] {
    return this.events
      .filter(({ event }) => event === 'log')
      .map(({ data }) => (JSON.parse(data) as { message: string }).message);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#reader.cancel().catch(() => {});
  }
}

async function open(query: string, init: CallInit = { key: mine.apiKey }): Promise<Reader> {
  const response = await api.call('GET', `/logs/stream?${query}`, init);
  expect(response.status).toBe(200);
  const reader = new Reader(response);
  await waitFor('the stream to begin', () => reader.text.includes('retry:'));
  return reader;
}

async function send(message: string, more: object = {}, tenant = mine): Promise<void> {
  await expectJson(
    await api.call('POST', '/ingest', {
      key: tenant.apiKey,
      json: [{ service: 'web', level: 'info', message, ...more }],
    }),
  );
}

/** A stream that has begun shows whatever is sent after its first bytes. */
async function sendAndSee(reader: Reader, message: string): Promise<void> {
  await send(message);
  await waitFor(`${message} on the stream`, () => reader.messages().includes(message));
}

describe('interface 5: GET /logs/stream', () => {
  it('event log, id, and one data line that is the entry as /logs returns it', async () => {
    await using reader = await open('');
    await sendAndSee(reader, 'begin');
    await send('line one\nline two\r\nevent: forged', {
      metadata: { big: 1, text: 'a\u2028b' },
      service: 'we\r\nb',
    });
    await waitFor('the entry', () => reader.messages().some((message) => message.includes('forged')));
    const event = reader.events.at(-1);
    expect(event?.event).toBe('log');
    const entry = JSON.parse(event?.data ?? '') as { id: string };
    expect(entry.id).toBe(event?.id);
    const stored = await waitFor('the stored entry', async () => {
      const response = await api.call('GET', `/logs/${entry.id}`, { key: mine.apiKey });
      return response.status === 200 ? response.text() : undefined;
    });
    expect(stored).toBe(`{"log":${event?.data}}`);
    expect(reader.events.every((one) => one.event === 'log')).toBe(true);
  });

  it('project_id is in the entries when a session asked, as in /logs', async () => {
    const query = `projectId=${mine.projectId}`;
    await using reader = await open(query, { session: mine.sessionToken });
    await sendAndSee(reader, 'for a session');
    expect(JSON.parse(reader.events[0]?.data ?? '')).toMatchObject({ project_id: mine.projectId });
    await using keyed = await open('');
    await sendAndSee(keyed, 'for a key');
    expect(JSON.parse(keyed.events[0]?.data ?? '')).not.toHaveProperty('project_id');
  });

  it('headers against buffering, also for HEAD', async () => {
    for (const method of ['GET', 'HEAD']) {
      const response = await api.call(method, '/logs/stream', { key: mine.apiKey });
      expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
      expect(response.headers.get('cache-control')).toContain('no-store');
      expect(response.headers.get('x-accel-buffering')).toBe('no');
      await response.body?.cancel();
    }
  });

  it('service, level and q filter; 400 for a filter that a stream cannot have', async () => {
    await using all = await open('');
    await using some = await open('service=db&level=error&q=disk');
    await sendAndSee(all, 'ready');
    await send('disk full', { service: 'db', level: 'error' });
    await send('disk full', { service: 'db', level: 'info' });
    await send('disk full', { service: 'web', level: 'error' });
    await send('network', { service: 'db', level: 'error' });
    await send('last', { service: 'db', level: 'error', message: 'disk last' });
    await waitFor('the last one', () => some.messages().includes('disk last'));
    expect(some.messages()).toEqual(['disk full', 'disk last']);
    await expectError(
      await api.call('GET', '/logs/stream?level=loud', { key: mine.apiKey }),
      400,
      'VALIDATION_ERROR',
    );
    await expectError(
      await api.call('GET', '/logs/stream?searchMode=regex&q=x', { key: mine.apiKey }),
      400,
      'VALIDATION_ERROR',
    );
  });

  it('401 and 403 as elsewhere; ?token=lp_… works here and only here', async () => {
    await expectError(await api.call('GET', '/logs/stream'), 401, 'MISSING_CREDENTIALS');
    await using reader = await open(`token=${mine.apiKey}`, {});
    await sendAndSee(reader, 'by token');
    expect(reader.messages()).toContain('by token');
    await expectError(await api.call('GET', `/logs?token=${mine.apiKey}`), 401, 'MISSING_CREDENTIALS');
    await expectError(
      await api.call('GET', `/logs/stream?token=${mine.sessionToken}&projectId=${mine.projectId}`),
      401,
      'MISSING_CREDENTIALS',
    );
  });

  it('shows nothing of another project, to a session neither', async () => {
    await using reader = await open(`projectId=${mine.projectId}`, { session: mine.sessionToken });
    await send('canary of the other', {}, other);
    await sendAndSee(reader, 'mine');
    expect(reader.text).not.toContain('canary');
    const foreign = await api.call('GET', `/logs/stream?projectId=${other.projectId}`, {
      session: mine.sessionToken,
    });
    await expectError(foreign, 404, 'NOT_FOUND');
  });

  it('Last-Event-ID or ?lastEventId= resumes without loss or repeat', async () => {
    const first = await open('');
    await sendAndSee(first, 'resume 0');
    const lastEventId = first.events.at(-1)?.id ?? '';
    await first[Symbol.asyncDispose]();
    for (let n = 1; n <= 5; n += 1) await send(`resume ${n}`);
    await using byHeader = await open('', { key: mine.apiKey, headers: { 'last-event-id': lastEventId } });
    await using byQuery = await open(`lastEventId=${lastEventId}`);
    await send('resume 6');
    const wanted = [1, 2, 3, 4, 5, 6].map((n) => `resume ${n}`);
    for (const reader of [byHeader, byQuery]) {
      await waitFor('the last entry', () => reader.messages().includes('resume 6'));
      expect(reader.messages().filter((message) => message !== 'resume 0')).toEqual(wanted);
    }
  });

  it('an id that means nothing here gets one event gap, then live', async () => {
    await using reader = await open('lastEventId=0199a1b2-0000-7000-8000-000000000001');
    await sendAndSee(reader, 'after the gap');
    expect(reader.events[0]?.event).toBe('gap');
    expect(Object.keys(JSON.parse(reader.events[0]?.data ?? '{}') as object).toSorted()).toEqual([
      'dropped',
      'from',
      'to',
    ]);
    expect(reader.events.filter(({ event }) => event === 'gap')).toHaveLength(1);
  });

  it('a revoked key ends its open stream within 5 s, others stay', async () => {
    const actor = { kind: 'system' } as const;
    const { id, apiKey } = await api.deps.apiKeys.create(actor, mine.projectId, { name: 'brief' });
    await using doomed = await open('', { key: apiKey });
    await using stays = await open('');
    await api.deps.apiKeys.revoke(actor, mine.projectId, id);
    await waitFor('the stream to end', () => doomed.isOver, 5_000);
    await sendAndSee(stays, 'still here');
    expect(stays.isOver).toBe(false);
  });

  it('a logged-out session ends its open stream within 5 s', async () => {
    const login = await api.deps.accounts.login(mine.email, 'correct horse battery staple');
    await using doomed = await open(`projectId=${mine.projectId}`, { session: login?.token ?? '' });
    await api.call('POST', '/auth/logout', { session: login?.token ?? '' });
    await waitFor('the stream to end', () => doomed.isOver, 5_000);
    expect(doomed.text).not.toContain('event: error');
  });

  it('a comment comes at least every 15 s while nothing else does', async () => {
    const quiet = await api.createTenant('quiet');
    await using reader = await open('', { key: quiet.apiKey });
    await waitFor('a heartbeat', () => reader.comments.length > 0, 15_000);
    expect(reader.events).toEqual([]);
  });

  it('the 101st stream of a project gets 429 with Retry-After', async () => {
    const busy = await api.createTenant('busy');
    const responses = [];
    for (let n = 0; n < 100; n += 1)
      responses.push(await api.call('GET', '/logs/stream', { key: busy.apiKey }));
    await expectError(await api.call('GET', '/logs/stream', { key: busy.apiKey }), 429, 'RATE_LIMITED');
    await responses[0]?.body?.cancel();
    responses.push(await api.call('GET', '/logs/stream', { key: busy.apiKey }));
    expect(responses.every((response) => response.status === 200)).toBe(true);
    await Promise.all(responses.slice(1).map(async (response) => response.body?.cancel()));
  });
});
