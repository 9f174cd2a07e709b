import { NotificationQueue } from '@logpond/db/notification-queue';
import type { NotificationJob, Outcome } from '@logpond/db/notification-job';
import { createUuidV7 } from '@logpond/db/uuid-v7';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { makeJob, makeRule } from './notification-fixture.ts';
import { StreamFixture } from './stream-fixture.ts';

const PROJECT_MAX = 2_000;
const REMINDERS_MAX = 500;
const CROWDED_MAX = 100;

let stack: AsyncDisposableStack;
let fixture: StreamFixture;
let queue: NotificationQueue;

beforeEach(async () => {
  stack = new AsyncDisposableStack();
  fixture = stack.use(await StreamFixture.open());
  queue = stack.use(await NotificationQueue.open(fixture.settings()));
});
afterEach(async () => stack.disposeAsync());

function makeJobs(
  count: number,
  kind: NotificationJob['firing']['kind'],
  projectId: string = createUuidV7(0),
): NotificationJob[] {
  const rule = makeRule({ projectId });
  return Array.from({ length: count }, (_, repeat) => makeJob(rule, { repeat, kind }));
}

async function countWaiting(): Promise<number> {
  return fixture.raw.llen(`{${fixture.settings().KEY_PREFIX}-notify}:mails:wait`);
}

it('a project has room for 2,000 notifications, and another one for its own; the rest is told', async () => {
  const jobs = makeJobs(PROJECT_MAX + 30, 'fired');
  const leftOut = await queue.add(jobs);
  expect(leftOut).toEqual(jobs.slice(PROJECT_MAX));
  expect(await countWaiting()).toBe(PROJECT_MAX);
  expect(await queue.add(makeJobs(5, 'fired'))).toEqual([]);
  // Once more: what is in stays in, and takes no second place.
  expect(await queue.add(jobs)).toEqual(leftOut);
  expect(await countWaiting()).toBe(PROJECT_MAX + 5);
});

it('reminders have less room than what fires and ends', async () => {
  const projectId = createUuidV7(0);
  const reminders = makeJobs(REMINDERS_MAX + 10, 'renotified', projectId);
  expect(await queue.add(reminders)).toEqual(reminders.slice(REMINDERS_MAX));
  expect(await queue.add(makeJobs(20, 'fired', projectId))).toEqual([]);
  expect(await queue.add(makeJobs(20, 'resolved', projectId))).toEqual([]);
  expect(await countWaiting()).toBe(REMINDERS_MAX + 40);
});

it('room that is given back is there for others, and what was done before is no new notification', async () => {
  const projectId = createUuidV7(0);
  const [done, ...jobs] = makeJobs(REMINDERS_MAX, 'renotified', projectId) as [
    NotificationJob,
    ...NotificationJob[],
  ];
  await queue.add([done]);
  const ended: string[] = [];
  const working = await queue.work(
    async (one): Promise<Outcome> => {
      if (one.kind === 'notification') ended.push(one.notification.id);
      return { kind: 'done' };
    },
    { concurrency: 1, onError: () => {} },
  );
  await waitFor('the first job', () => ended.length === 1);
  await working[Symbol.asyncDispose]();
  await queue.add(jobs);
  const more = makeJobs(2, 'renotified', projectId);
  expect(await queue.add(more)).toEqual(more);
  await queue.release('email', projectId, [done.id]);
  expect(await queue.add(more)).toEqual(more.slice(1));
  expect(await queue.add([done])).toEqual([]);
});

it('in a crowd every project has a little room, one that never added anything too', async () => {
  const crowd = Array.from({ length: 5 }, () => makeJobs(PROJECT_MAX, 'fired')).flat();
  expect(await queue.add(crowd)).toEqual([]);
  const jobs = makeJobs(CROWDED_MAX + 10, 'fired');
  expect(await queue.add(jobs)).toEqual(jobs.slice(CROWDED_MAX));
  // The other channel is not crowded.
  const rule = makeRule({ notifications: [{ type: 'webhook', config: { url: 'https://x.example/' } }] });
  const posts = Array.from({ length: CROWDED_MAX + 10 }, (_, repeat) => makeJob(rule, { repeat }));
  expect(await queue.add(posts)).toEqual([]);
}, 60_000);
