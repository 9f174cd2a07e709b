import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connectClickHouse } from '@logpond/db/clickhouse';
import { StoreError } from '@logpond/db/store-error';
import { beforeAll, expect, it } from 'vitest';
import { RefusalCounter } from './refusals.ts';

const ANSWERS = {
  memory: 'Code: 241. DB::Exception: too large. (MEMORY_LIMIT_EXCEEDED)',
  parts: 'Code: 252. DB::Exception: merges lag behind. (TOO_MANY_PARTS)',
  refused: 'Code: 469. DB::Exception: a constraint. (VIOLATED_CONSTRAINT)',
  /** None: the connection breaks. */
  none: '',
};
type Answer = keyof typeof ANSWERS;

const errors = new Map<Answer, StoreError>();

/** Every failure as it comes from the client, of a server that answers thus. */
beforeAll(async () => {
  for (const [answer, text] of Object.entries(ANSWERS) as [Answer, string][]) {
    const server = createServer((request, response) => {
      request.resume();
      if (text === '') request.socket.destroy();
      else response.writeHead(500).end(text);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    await using clickhouse = connectClickHouse({
      CLICKHOUSE_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      CLICKHOUSE_USER: 'default',
      CLICKHOUSE_PASSWORD: '',
      CLICKHOUSE_DATABASE: 'default',
      CLICKHOUSE_PROJECT_SETTING: 'log_comment',
    });
    const error: unknown = await clickhouse
      .insert('INSERT INTO logs FORMAT Native', [Buffer.alloc(1)], {})
      .catch((thrown: unknown) => thrown);
    if (!(error instanceof StoreError)) throw new TypeError(`expected a StoreError, got ${String(error)}`);
    errors.set(answer, error);
    server.closeAllConnections();
    server.close();
  }
});

/** What a counter says to these failures in turn. */
function countAll(answers: readonly Answer[], mayHalveForMemory = true): number[] {
  const counter = new RefusalCounter({ mayHalveForMemory });
  return answers.map((answer) => {
    const error = errors.get(answer);
    if (error === undefined) throw new RangeError(`expected an error for ${answer}`);
    return counter.count(error);
  });
}

it('the same reason is counted, another begins anew', () => {
  expect(countAll(['memory', 'memory', 'refused', 'refused', 'refused'])).toEqual([1, 2, 1, 2, 3]);
  expect(countAll(['memory', 'parts', 'memory'])).toEqual([1, 0, 2]);
});

it('F22: memory is no reason to cut a plan once an insert of it was not answered, or may have been made by another', () => {
  expect(countAll(['memory', 'none', 'memory', 'memory', 'memory'])).toEqual([1, 0, 0, 0, 0]);
  expect(countAll(['memory', 'memory', 'memory'], false)).toEqual([0, 0, 0]);
  expect(countAll(['refused', 'none', 'refused', 'refused'])).toEqual([1, 0, 2, 3]);
});
