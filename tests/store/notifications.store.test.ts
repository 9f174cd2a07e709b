import { createHmac } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseMail } from '../support/smtp-sink.ts';
import { WebhookSink } from '../support/webhook-sink.ts';
import { makeJob } from './notification-fixture.ts';
import { NotifierFixture } from './notifier-fixture.ts';

let own: NotifierFixture;
beforeEach(async () => {
  own = await NotifierFixture.open();
});
afterEach(async () => own[Symbol.asyncDispose]());

describe('e-mail', () => {
  it('tells of a firing once, and the history says that it was sent', async () => {
    await own.startNotifier();
    const job = makeJob(await own.createRule());
    await own.queue.add([job]);
    const [row] = await own.waitForDelivery('sent');
    expect(own.smtp.mails).toHaveLength(1);
    const [mail] = own.smtp.mails;
    expect(mail?.subject).toBe('[FIRING] Many errors: 57 ≥ 50 in 5m (Shop)');
    expect(mail?.text.split('\n')[0]).toBe(
      'The alert rule "Many errors" fired: 57 entries matched within 5m, its threshold is 50.',
    );
    expect(mail?.firings).toEqual([job.firing.firingId]);
    expect(mail?.headers).toContainEqual(['auto-submitted', 'auto-generated']);
    expect(mail?.messageId).toMatch(/@logpond\.example>$/);
    expect(mail?.sender).toBe('alerts@logpond.example');
    expect(row).toMatchObject({
      firingId: job.firing.firingId,
      channel: 'email',
      target: 'ops@example.com',
      attempts: 1,
      lastError: null,
    });
  });

  it('sends again with the same Message-ID when the connection is cut before the 250', async () => {
    await own.startNotifier();
    own.smtp.cutBeforeReply(1);
    await own.queue.add([makeJob(await own.createRule())]);
    await own.waitForDelivery('sent');
    const ids = own.smtp.mails.map(({ messageId }) => messageId);
    expect(ids).toHaveLength(2);
    expect(new Set(ids).size).toBe(1);
  });

  it('tries again while the server says not now', async () => {
    await own.startNotifier();
    own.smtp.refuse(3, 451, '4.7.1 greylisted');
    await own.queue.add([makeJob(await own.createRule())]);
    const [sent] = await own.waitForDelivery('sent');
    expect(sent?.attempts).toBe(4);
    const retrying = await own.waitForDelivery('retrying', 3);
    expect(retrying[0]?.lastError).toContain('451 4.7.1 greylisted');
  });

  it('is sent by another attempt when the server does not answer', async () => {
    await own.startNotifier();
    own.smtp.hang(1);
    await own.queue.add([makeJob(await own.createRule())]);
    const [sent] = await own.waitForDelivery('sent');
    expect(sent?.attempts).toBe(2);
  });

  it('fails after ten attempts, with the answer of the server', async () => {
    await own.startNotifier();
    own.smtp.refuse(100, 451, 'out of order');
    await own.queue.add([makeJob(await own.createRule())]);
    const [failed] = await own.waitForDelivery('failed');
    expect(failed).toMatchObject({ attempts: 10 });
    expect(failed?.lastError).toContain('451 out of order');
    expect(own.smtp.attempts).toBe(10);
  });

  it('does not repeat what the server refused for good', async () => {
    await own.startNotifier();
    own.smtp.refuse(100, 550, '5.1.1 no such mailbox', 'rcpt');
    await own.queue.add([makeJob(await own.createRule())]);
    const [failed] = await own.waitForDelivery('failed');
    expect(failed).toMatchObject({ attempts: 1 });
    expect(failed?.lastError).toContain('550');
    expect(own.smtp.attempts).toBe(0);
  });

  it('is not sent when its rule was deleted meanwhile, which the history says', async () => {
    const [deleted, kept] = [await own.createRule(), await own.createRule()];
    const job = makeJob(deleted);
    await own.queue.add([job]);
    await own.deleteRule(deleted);
    await own.startNotifier();
    await own.queue.add([makeJob(kept)]);
    await own.waitForDelivery('sent');
    const [failed] = await own.waitForDelivery('failed');
    expect(failed).toMatchObject({ firingId: job.firing.firingId, lastError: 'the rule was deleted' });
    expect(own.smtp.mails).toHaveLength(1);
    expect(await own.readDeliveries()).toHaveLength(2);
  });

  it('is not sent again by the same notifier when only the word of it was lost', async () => {
    await own.startNotifier();
    // Longer than a job may go without its lock being renewed, so that the queue hands it out once more.
    own.smtp.onMail = async () => {
      await own.server.raw.client('PAUSE', 8_000, 'ALL');
    };
    const job = makeJob(await own.createRule());
    await own.queue.add([job]);
    await own.waitForDelivery('sent');
    await own.waitUntilDone(job.id);
    expect(own.smtp.mails).toHaveLength(1);
  });

  it('without SMTP_URL is written to the outbox, once, readable by its owner only', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'logpond-outbox-'));
    own.stack.defer(async () => rm(directory, { recursive: true }));
    const outbox = join(directory, 'outbox');
    const notifier = await own.startNotifier({ SMTP_URL: '', MAIL_OUTBOX_DIR: outbox });
    const job = makeJob(await own.createRule());
    await own.queue.add([job]);
    await own.waitForDelivery('sent');
    await notifier[Symbol.asyncDispose]();
    const files = await readdir(outbox);
    expect(files).toEqual([
      expect.stringMatching(new RegExp(`^20260921T\\d{6}Z-${job.firing.firingId}.*\\.eml$`)),
    ]);
    const path = join(outbox, files[0] ?? '');
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect((await parseMail(await readFile(path))).subject).toBe(
      '[FIRING] Many errors: 57 ≥ 50 in 5m (Shop)',
    );
  });

  it('without SMTP_URL and outbox is not configured, which the history says', async () => {
    await own.startNotifier({ SMTP_URL: '' });
    await own.queue.add([makeJob(await own.createRule())]);
    const [row] = await own.waitForDelivery('not_configured');
    expect(row).toMatchObject({ attempts: 1, lastError: null });
  });
});

describe('a webhook', () => {
  it('is posted with the secret that was sealed, and with the headers of the rule', async () => {
    const sink = own.stack.use(await WebhookSink.open());
    await own.startNotifier();
    const config = { url: sink.url, secret: 's3cret', headers: { 'X-Team': 'blue' } };
    const rule = await own.createRule({ notifications: [{ type: 'webhook', config }] });
    const job = makeJob(rule);
    await own.queue.add([job]);
    await own.waitForDelivery('sent');
    const [post] = sink.received;
    expect(post?.headers).toMatchObject({ 'x-team': 'blue', 'x-logpond-delivery': job.id });
    const [, t, mac] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(post?.headers['x-logpond-signature'])) ?? [];
    expect(mac).toBe(createHmac('sha256', 's3cret').update(`${t}.${post?.body}`).digest('hex'));
    expect(post?.json).toMatchObject({
      id: job.firing.firingId,
      type: 'alert.firing',
      rule: { id: rule.id, name: 'Many errors' },
      project: { id: own.projectId, name: 'Shop' },
      count: 57,
      threshold: 50,
      window: '5m',
    });
    expect(
      JSON.stringify(await own.server.raw.hgetall(`{${own.redis.prefix}-notify}:webhooks:${job.id}`)),
    ).not.toContain('s3cret');
  });

  it('is not repeated after a 4xx, but after 429 and 5xx', async () => {
    const sink = own.stack.use(await WebhookSink.open());
    await own.startNotifier();
    const rule = await own.createRule({ notifications: [{ type: 'webhook', config: { url: sink.url } }] });
    sink.replyNext(1, 429);
    sink.replyNext(1, 503);
    await own.queue.add([makeJob(rule)]);
    const [sent] = await own.waitForDelivery('sent');
    expect(sent?.attempts).toBe(3);
    sink.reply(410);
    await own.queue.add([makeJob(rule, { repeat: 1, kind: 'renotified' })]);
    const [failed] = await own.waitForDelivery('failed');
    expect(failed).toMatchObject({ attempts: 1, lastError: '410 Gone' });
  });

  it('to a private address is refused unless the operator lists the network', async () => {
    const sink = own.stack.use(await WebhookSink.open());
    await own.startNotifier({ WEBHOOK_ALLOWED_NETWORKS: '10.0.0.0/8' });
    const rule = await own.createRule({ notifications: [{ type: 'webhook', config: { url: sink.url } }] });
    await own.queue.add([makeJob(rule)]);
    const [failed] = await own.waitForDelivery('failed');
    expect(failed?.attempts).toBe(1);
    expect(sink.connections).toBe(0);
  });
});

describe('a test notification', () => {
  it('goes to every recipient at once, and brings back the answers of their servers', async () => {
    const sink = own.stack.use(await WebhookSink.open());
    await own.startNotifier();
    const rule = await own.createRule({
      notifications: [
        { type: 'email', config: { recipients: ['ops@example.com', 'gone@example.com'] } },
        { type: 'webhook', config: { url: sink.url } },
      ],
    });
    own.smtp.refuse(1, 550, 'no such mailbox', 'rcpt');
    const answers = await own.queue.sendTest(rule, 10_000);
    expect(answers).toHaveLength(3);
    expect(answers).toContainEqual({
      channel: 'webhook',
      target: sink.url,
      status: 'sent',
      answer: '204 No Content',
    });
    const mails = answers.filter(({ channel }) => channel === 'email');
    expect(mails.map(({ status }) => status).toSorted()).toEqual(['failed', 'sent']);
    expect(mails.map(({ answer }) => answer).join(' ')).toContain('no such mailbox');
    expect(mails.map(({ answer }) => answer).join(' ')).toContain('250 2.0.0 kept');
    expect(own.smtp.mails[0]?.subject).toMatch(/^\[TEST\] Many errors/);
    expect(sink.received[0]?.json).toMatchObject({ type: 'alert.test' });
    expect(await own.readDeliveries()).toEqual([]);
  });
});
