import { encodeRuns, makeRule, NOW_S, OTHER } from '@logpond/alert-worker/rule.test-support';
import type { RedisStore } from '@logpond/db/connect';
import type { LogStream } from '@logpond/db/log-stream';
import { RuleStream } from '@logpond/db/rule-stream';
import { expect, it } from 'vitest';
import { createEntries } from '../bench/corpus.ts';
import { createRandom, pickInteger } from '../system/support/random.ts';
import { Owner, readCounted, sendErrors, settle } from './alert-evaluator-fixture.ts';
import { beginEachTest } from './stream-fixture.ts';

let redis: RedisStore;
let stream: LogStream;

beginEachTest((begun) => ({ redis, stream } = begun));

const SEED = 1;

async function putPattern(id: string, value: string): Promise<void> {
  const condition = { field: 'message', operator: 'regex', value, threshold: 1e9, timeWindow: '1h' } as const;
  await new RuleStream(redis).publish({ op: 'put', rule: { ...makeRule({ id }), condition } });
}

async function send(entries: { message: string }[]): Promise<void> {
  const admission = await stream.admit(0, encodeRuns([{ second: NOW_S, entries }]));
  if (admission.kind !== 'stored') throw new Error(`expected the block stored, got ${admission.kind}`);
}

it('ordinary patterns are asked about every entry, however many there are', async () => {
  const patterns = {
    'time(d )?out': /time(d )?out/u,
    '^GET /api/.* 5\\d\\d': /^GET \/api\/.* 5\d\d/u,
    '(?i)REJECTED.*(conn|sock|query)': /rejected.*(conn|sock|query)/iu,
    '\\b(?:5\\d\\d|timeout)\\b': /\b(?:5\d\d|timeout)\b/u,
    '(?:[^ ]+ ){2}by': /(?:[^ ]+ ){2}by/u,
    '(?i)\\b(fatal|panic|oom|out of memory)\\b|(\\d{1,3}\\.){3}\\d':
      /\b(fatal|panic|oom|out of memory)\b|(\d{1,3}\.){3}\d/iu,
  };
  const ids = Object.keys(patterns).map((_, index) => `rule-${index}`);
  for (const [index, pattern] of Object.keys(patterns).entries()) await putPattern(ids[index] ?? '', pattern);
  const messages = createEntries(SEED, 40_000).map(({ message }) => message);
  for (let from = 0; from < messages.length; from += 1_000)
    await send(messages.slice(from, from + 1_000).map((message) => ({ message })));
  const owner = await Owner.take(redis);
  await settle(redis);
  const counted = await Promise.all(ids.map(async (id) => readCounted(redis, id)));
  const expected = Object.values(patterns).map((regex) => messages.filter((one) => regex.test(one)).length);
  expect(counted).toEqual(expected);
  expect(Math.max(...expected)).toBeGreaterThan(1_000);
  await owner.stop();
});

it('a hostile pattern gets no more than its time, and the rules of others count whole', async () => {
  await putPattern('hostile', '[ab].{48}[ab].{48}[ab].{48}[xy]');
  const other = makeRule({ id: 'other', projectId: OTHER });
  await new RuleStream(redis).publish({ op: 'put', rule: other });
  const random = createRandom(SEED);
  // Each matches at its end, so that what is counted tells how often the pattern was asked.
  const makeMessage = (): string =>
    `${Array.from({ length: 60_000 }, () => 'ab '[pickInteger(random, 0, 2)]).join('')}${'a'.repeat(200)}x`;
  for (let block = 0; block < 10; block += 1) {
    await send(Array.from({ length: 20 }, () => ({ message: makeMessage() })));
    await sendErrors(stream, 5, 0, { projectId: OTHER });
  }
  const owner = await Owner.take(redis);
  await settle(redis);
  expect(await readCounted(redis, 'other')).toBe(50);
  const asked = await readCounted(redis, 'hostile');
  expect(asked).toBeGreaterThan(0);
  expect(asked).toBeLessThan(100);
  await owner.stop();
});
