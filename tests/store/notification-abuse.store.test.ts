import type { ServerResponse } from 'node:http';
import { listNotificationJobs } from '@logpond/db/notification-job';
import type { NotificationJob } from '@logpond/db/notification-job';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { WebhookSink } from '../support/webhook-sink.ts';
import { makeFiring, makeJob } from './notification-fixture.ts';
import { NotifierFixture } from './notifier-fixture.ts';

const POSTS_MAX = 4;

let own: NotifierFixture;
beforeEach(async () => {
  own = await NotifierFixture.open();
});
afterEach(async () => own[Symbol.asyncDispose]());

describe('web servers that are silent', () => {
  it('hold up no mail, and of one project at most four are waited for at a time', async () => {
    const sink = own.stack.use(await WebhookSink.open());
    const open: ServerResponse[] = [];
    let most = 0;
    sink.reply((_request, response) => {
      open.push(response);
      most = Math.max(most, open.length);
    });
    await own.startNotifier();
    const urls = Array.from({ length: 20 }, (_, index) => `${sink.url}/${index}`);
    const notifications = urls.map((url) => ({ type: 'webhook' as const, config: { url } }));
    await own.queue.add(listNotificationJobs(makeFiring(await own.createRule({ notifications }))));
    await waitFor('the posts', () => open.length === POSTS_MAX);
    await own.queue.add([makeJob(await own.createRule())]);
    await own.waitForDelivery('sent');
    expect(own.smtp.mails).toHaveLength(1);
    expect(sink.received).toHaveLength(POSTS_MAX);
    // Each that ends makes room for one that waits, until all were sent.
    const answering = setInterval(() => open.shift()?.writeHead(204).end(), 5);
    own.stack.defer(() => clearInterval(answering));
    await own.waitForDelivery('sent', urls.length + 1);
    expect(most).toBe(POSTS_MAX);
    expect(new Set(sink.received.map(({ path }) => path)).size).toBe(urls.length);
  });
});

describe('the mails of a day', () => {
  const REASON_RECIPIENT = 'expected at most 2 mails a day from a project to one recipient';
  const REASON_PROJECT = 'expected at most 3 mails a day from a project';

  async function makeRuleJob(recipient = 'ops@example.com'): Promise<NotificationJob> {
    const notifications = [{ type: 'email' as const, config: { recipients: [recipient] } }];
    return makeJob(await own.createRule({ notifications }));
  }

  it('are so many to a recipient, in any letter case, and so many of a project; the history says it', async () => {
    await own.startNotifier({ MAIL_PER_RECIPIENT_DAY_MAX: '2', MAIL_PER_PROJECT_DAY_MAX: '3' });
    await own.queue.add([await makeRuleJob(), await makeRuleJob('OPS@example.com')]);
    await own.waitForDelivery('sent', 2);
    await own.queue.add([await makeRuleJob()]);
    const [first] = await own.waitForDelivery('failed');
    expect(first).toMatchObject({ attempts: 1, lastError: REASON_RECIPIENT });
    await own.queue.add([await makeRuleJob('dev@example.com')]);
    await own.waitForDelivery('sent', 3);
    await own.queue.add([await makeRuleJob('boss@example.com')]);
    const [, second] = await own.waitForDelivery('failed', 2);
    expect(second?.lastError).toBe(REASON_PROJECT);
    expect(own.smtp.mails).toHaveLength(3);
  });

  it('count each mail once, however often it is tried', async () => {
    await own.startNotifier({ MAIL_PER_RECIPIENT_DAY_MAX: '2' });
    own.smtp.refuse(5, 451);
    await own.queue.add([await makeRuleJob()]);
    await own.waitForDelivery('sent');
    await own.queue.add([await makeRuleJob()]);
    await own.waitForDelivery('sent', 2);
    expect(own.smtp.attempts).toBe(7);
  });

  it('count the mail of a group as one, and what a group cannot send any more has failed in the history', async () => {
    await own.startNotifier({ MAIL_PER_RECIPIENT_DAY_MAX: '2' }, { mailIntervalMs: 300 });
    const rule = await own.createRule();
    const jobs = Array.from({ length: 9 }, (_, repeat) => makeJob(rule, { repeat }));
    await own.queue.add(jobs.slice(0, 1));
    await own.waitForDelivery('sent');
    await own.queue.add(jobs.slice(1, 5));
    await own.waitForDelivery('sent', 5);
    await own.queue.add(jobs.slice(5));
    await own.waitForDelivery('failed', 4);
    expect(own.smtp.mails.map(({ firings }) => firings.length)).toEqual([1, 4]);
    await waitFor('its room', async () => (await own.countRoom('email')) === 0);
  });

  it('count tests too', async () => {
    await own.startNotifier({ MAIL_PER_RECIPIENT_DAY_MAX: '1' });
    const rule = await own.createRule();
    expect(await own.queue.sendTest(rule, 10_000)).toMatchObject([{ status: 'sent' }]);
    expect(await own.queue.sendTest(rule, 10_000)).toMatchObject([
      { status: 'failed', answer: 'expected at most 1 mails a day from a project to one recipient' },
    ]);
    expect(own.smtp.mails).toHaveLength(1);
  });
});

describe('the room of a project in the queue', () => {
  it('is given back by what was sent, what failed, and what shared a mail', async () => {
    const sink = own.stack.use(await WebhookSink.open());
    const rule = await own.createRule();
    await own.queue.add(Array.from({ length: 5 }, (_, repeat) => makeJob(rule, { repeat })));
    const notifications = [{ type: 'webhook' as const, config: { url: sink.url } }];
    const webhook = await own.createRule({ notifications });
    sink.replyNext(1, 410);
    await own.queue.add([makeJob(webhook), makeJob(webhook, { repeat: 1 })]);
    expect([await own.countRoom('email'), await own.countRoom('webhook')]).toEqual([5, 2]);
    await own.startNotifier({}, { mailIntervalMs: 300 });
    await own.waitForDelivery('sent', 6);
    await own.waitForDelivery('failed');
    for (const channel of ['email', 'webhook'] as const) {
      await waitFor(`room of ${channel}`, async () => (await own.countRoom(channel)) === 0);
    }
  });
});
