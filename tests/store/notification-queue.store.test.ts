import { once } from 'node:events';
import { spawn } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { NotificationQueue } from '@logpond/db/notification-queue';
import type { WorkOptions } from '@logpond/db/notification-work';
import type { Outcome, QueuedJob } from '@logpond/db/notification-job';
import { StoreError } from '@logpond/db/store-error';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { makeJob, makeRule } from './notification-fixture.ts';
import { StreamFixture } from './stream-fixture.ts';

const errors: Error[] = [];
const QUICK: WorkOptions = {
  concurrency: 20,
  onError: (error) => errors.push(error),
  pauseBeforeRetry: () => 20,
};

let stack: AsyncDisposableStack;
let fixture: StreamFixture;
let queue: NotificationQueue;

beforeEach(async () => {
  errors.length = 0;
  stack = new AsyncDisposableStack();
  fixture = stack.use(await StreamFixture.open());
  queue = stack.use(await NotificationQueue.open(fixture.settings()));
});
afterEach(async () => stack.disposeAsync());

function idOf(job: QueuedJob): string {
  if (job.kind === 'notification') return job.notification.id;
  return job.kind === 'group' ? job.group.id : job.test.id;
}

function waitKey(): string {
  return `{${fixture.settings().KEY_PREFIX}-notify}:mails:wait`;
}

async function waitForState(id: string, state: 'completed' | 'failed'): Promise<void> {
  const key = `{${fixture.settings().KEY_PREFIX}-notify}:mails:${state}`;
  await waitFor(`the job to be ${state}`, async () => (await fixture.raw.zscore(key, id)) !== null);
}

describe('the queue of notifications', () => {
  it('does a job once although it is added again, before and after it was done', async () => {
    const seen: string[] = [];
    const job = makeJob(makeRule());
    await queue.add([job, job]);
    await queue.add([job]);
    stack.use(
      await queue.work(async (one): Promise<Outcome> => {
        seen.push(idOf(one));
        return { kind: 'done' };
      }, QUICK),
    );
    await waitFor('the job', () => seen.length > 0);
    await queue.add([job]);
    const later = makeJob(makeRule());
    await queue.add([later]);
    await waitFor('the later job', () => seen.includes(later.id));
    expect(seen).toEqual([job.id, later.id]);
  });

  it('tries ten times, and says which attempt is the last', async () => {
    const attempts: { number: number; isLast: boolean }[] = [];
    const job = makeJob(makeRule());
    await queue.add([job]);
    stack.use(
      await queue.work(async (_job, { number, isLast }): Promise<Outcome> => {
        attempts.push({ number, isLast });
        return { kind: 'retry', reason: 'not yet' };
      }, QUICK),
    );
    await waitForState(job.id, 'failed');
    expect(attempts.map(({ number }) => number)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    expect(attempts.filter(({ isLast }) => isLast)).toEqual([{ number: 10, isLast: true }]);
  });

  it('does not count a job that is not due yet as an attempt', async () => {
    const numbers: number[] = [];
    await queue.add([makeJob(makeRule())]);
    stack.use(
      await queue.work(async (_job, { number }): Promise<Outcome> => {
        numbers.push(number);
        return numbers.length < 3 ? { kind: 'later', atMs: Date.now() + 50 } : { kind: 'done' };
      }, QUICK),
    );
    await waitFor('three looks', () => numbers.length === 3);
    expect(numbers).toEqual([1, 1, 1]);
  });

  it('gives up at once when a failure is final', async () => {
    let attempts = 0;
    const job = makeJob(makeRule());
    await queue.add([job]);
    stack.use(
      await queue.work(async (): Promise<Outcome> => {
        attempts += 1;
        return { kind: 'failed', reason: 'refused' };
      }, QUICK),
    );
    await waitForState(job.id, 'failed');
    expect(attempts).toBe(1);
  });

  it('does mails while as many webhooks as it takes never end', async () => {
    const seen: string[] = [];
    const ended = Promise.withResolvers<Outcome>();
    const webhook = makeRule({ notifications: [{ type: 'webhook', config: { url: 'https://x.example/' } }] });
    const mails = Array.from({ length: 3 }, () => makeJob(makeRule()));
    await queue.add([makeJob(webhook), makeJob(webhook, { repeat: 1 })]);
    stack.use(
      await queue.work(
        async (one): Promise<Outcome> => {
          seen.push(idOf(one));
          const isWebhook = one.kind === 'notification' && one.notification.channel === 'webhook';
          return isWebhook ? ended.promise : { kind: 'done' };
        },
        { ...QUICK, concurrency: 1 },
      ),
    );
    await waitFor('a webhook', () => seen.length === 1);
    await queue.add(mails);
    await waitFor('all mails', () => mails.every(({ id }) => seen.includes(id)));
    expect(seen).toHaveLength(4);
    ended.resolve({ kind: 'done' });
  });

  it('hands the job of a worker that died to another one within about ten seconds', async () => {
    const job = makeJob(makeRule());
    await queue.add([job]);
    const { REDIS_URL, KEY_PREFIX } = fixture.settings();
    // In a process of its own, so that nothing of it is left when it is killed.
    const script = `
      const { NotificationQueue } = await import('@logpond/db/notification-queue');
      const settings = JSON.parse(process.argv[1]);
      const queue = await NotificationQueue.open(settings);
      await queue.work(async () => { process.stdout.write('taken'); return new Promise(() => {}); },
        { concurrency: 1, onError() {} });`;
    const settings = { ...fixture.settings(), REDIS_URL, KEY_PREFIX };
    const args = ['--input-type=module', '-e', script, JSON.stringify(settings)];
    const child = spawn(process.execPath, args, {
      cwd: import.meta.dirname,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(child.stdout, 'data');
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
    const seen: string[] = [];
    stack.use(
      await queue.work(async (one): Promise<Outcome> => {
        seen.push(idOf(one));
        return { kind: 'done' };
      }, QUICK),
    );
    await waitFor('the job of the dead worker', () => seen.length > 0, 30_000);
    expect(seen).toEqual([job.id]);
  });

  it('loses nothing while Redis dies and comes back, and says unavailable meanwhile', async () => {
    const seen = new Set<string>();
    stack.use(
      await queue.work(async (one): Promise<Outcome> => {
        await delay(5);
        seen.add(idOf(one));
        return { kind: 'done' };
      }, QUICK),
    );
    const jobs = Array.from({ length: 60 }, (_, repeat) => makeJob(makeRule(), { repeat }));
    await queue.add(jobs.slice(0, 30));
    const back = fixture.restartRedis();
    const failure = await queue.add(jobs.slice(30)).then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(failure).toBeInstanceOf(StoreError);
    await back;
    await waitFor('the queue to take jobs again', async () => {
      await queue.add(jobs.slice(30));
      return true;
    });
    await waitFor('all jobs', () => seen.size === jobs.length, 40_000);
    // A failure for each connection and second, not for each turn of a loop.
    expect(errors.length).toBeLessThan(200);
  });

  it('rests between two looks while Redis refuses to be written to', async () => {
    const seen: string[] = [];
    await fixture.raw.config('SET', 'maxmemory', '1');
    stack.use(
      await queue.work(async (one): Promise<Outcome> => {
        seen.push(idOf(one));
        return { kind: 'done' };
      }, QUICK),
    );
    // A rate is asked for, so there is nothing to wait for but time.
    await delay(2_000);
    const failures = errors.length;
    await fixture.raw.config('SET', 'maxmemory', '0');
    expect(failures).toBeGreaterThan(0);
    expect(failures).toBeLessThan(10);
    const job = makeJob(makeRule());
    await queue.add([job]);
    await waitFor('the job', () => seen.includes(job.id));
  });
});

describe('a test notification', () => {
  it('brings back what each recipient answered', async () => {
    stack.use(
      await queue.work(async (one): Promise<Outcome> => {
        if (one.kind !== 'test') return { kind: 'done' };
        const { channel, target } = one.test;
        return { kind: 'done', test: { channel, target, status: 'sent', answer: `250 ${target}` } };
      }, QUICK),
    );
    const recipients = ['a@example.com', 'b@example.com'];
    const rule = makeRule({ notifications: [{ type: 'email', config: { recipients } }] });
    expect(await queue.sendTest(rule, 5_000)).toEqual(
      recipients.map((target) => ({ channel: 'email', target, status: 'sent', answer: `250 ${target}` })),
    );
  });

  it('is unavailable without a notifier, and is not sent by one that comes later', async () => {
    await expect(queue.sendTest(makeRule(), 300)).rejects.toThrow('no notifier took the test within 300 ms');
    const seen: string[] = [];
    stack.use(
      await queue.work(async (one): Promise<Outcome> => {
        seen.push(one.kind);
        return { kind: 'done' };
      }, QUICK),
    );
    await queue.add([makeJob(makeRule())]);
    await waitFor('the other job', () => seen.length > 0);
    expect(seen).toEqual(['notification']);
  });

  it('comes after the alerts that wait already', async () => {
    const seen: string[] = [];
    await queue.add(Array.from({ length: 20 }, () => makeJob(makeRule())));
    const answers = queue.sendTest(makeRule(), 10_000);
    await waitFor('the test to wait', async () => (await fixture.raw.llen(waitKey())) === 21);
    stack.use(
      await queue.work(
        async (one): Promise<Outcome> => {
          seen.push(one.kind);
          if (one.kind !== 'test') return { kind: 'done' };
          const { channel, target } = one.test;
          return { kind: 'done', test: { channel, target, status: 'sent', answer: null } };
        },
        { ...QUICK, concurrency: 1 },
      ),
    );
    await answers;
    expect(seen.indexOf('test')).toBe(20);
  });
});
