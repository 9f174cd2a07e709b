import { NotificationGroups } from '@logpond/db/notification-group';
import { listNotificationJobs } from '@logpond/db/notification-job';
import type { NotificationJob } from '@logpond/db/notification-job';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeFiring, makeJob } from './notification-fixture.ts';
import { NotifierFixture } from './notifier-fixture.ts';

let own: NotifierFixture;
beforeEach(async () => {
  own = await NotifierFixture.open();
});
afterEach(async () => own[Symbol.asyncDispose]());

describe('mails of one rule to one recipient', () => {
  const MAIL_INTERVAL_MS = 3_000;

  it('are at most one a minute; what comes meanwhile is in the next, each firing in exactly one', async () => {
    await own.startNotifier({}, { mailIntervalMs: MAIL_INTERVAL_MS });
    const rule = await own.createRule({ notifyResolved: true });
    const firings = Array.from({ length: 5 }, (_, index) =>
      makeFiring(rule, { repeat: index, kind: index === 4 ? 'resolved' : 'fired', resolvedAtMs: null }),
    );
    const [first, ...later] = firings.flatMap(listNotificationJobs);
    await own.queue.add(first === undefined ? [] : [first]);
    const sentAtMs = Date.now();
    await own.waitForDelivery('sent');
    expect(Date.now() - sentAtMs).toBeLessThan(MAIL_INTERVAL_MS);
    await own.queue.add(later);
    await own.waitForDelivery('sent', 5);
    expect(own.smtp.mails).toHaveLength(2);
    const [alone, together] = own.smtp.mails;
    expect((together?.arrivedAtMs ?? 0) - (alone?.arrivedAtMs ?? 0)).toBeGreaterThanOrEqual(
      MAIL_INTERVAL_MS - 50,
    );
    expect(alone?.firings).toEqual([first?.firing.firingId]);
    expect(together?.firings.toSorted()).toEqual(later.map(({ firing }) => firing.firingId).toSorted());
    expect(together?.subject).toMatch(
      /^\[(FIRING|RESOLVED)\] Many errors: 4 notifications, last 57 ≥ 50 in 5m/,
    );
    for (const { firing } of later) expect(together?.text).toContain(firing.firingId);
  });

  it('do not hold up another rule or another recipient', async () => {
    await own.startNotifier();
    const recipients = ['ops@example.com', 'dev@example.com'];
    const notifications = [{ type: 'email' as const, config: { recipients } }];
    const [one, other] = [await own.createRule({ notifications }), await own.createRule()];
    await own.queue.add([...listNotificationJobs(makeFiring(one)), makeJob(other)]);
    await own.waitForDelivery('sent', 3);
    expect(own.smtp.mails.map(({ recipient }) => recipient).toSorted()).toEqual([
      'dev@example.com',
      'ops@example.com',
      'ops@example.com',
    ]);
  });

  it('wait together while one of them cannot be sent, and keep their Message-ID when they are repeated', async () => {
    await own.startNotifier({}, { mailIntervalMs: 200, pauseBeforeRetry: () => 300 });
    const rule = await own.createRule();
    own.smtp.refuse(3, 451);
    const jobs = Array.from({ length: 6 }, (_, repeat) => makeJob(rule, { repeat, kind: 'renotified' }));
    await own.queue.add(jobs.slice(0, 1));
    await own.waitForDelivery('retrying');
    await own.queue.add(jobs.slice(1));
    await own.waitForDelivery('sent', 1);
    own.smtp.cutBeforeReply(1);
    await own.waitForDelivery('sent', 6);
    expect(own.smtp.mails.map(({ firings }) => firings.length)).toEqual([1, 5, 5]);
    expect(own.smtp.mails[1]?.messageId).toBe(own.smtp.mails[2]?.messageId);
    expect(own.smtp.mails[1]?.firings).toEqual(own.smtp.mails[2]?.firings);
  });
});

describe('the decision which notifications share a mail', () => {
  const MINUTE_MS = 60_000;
  const nowMs = 1_790_000_000_000;
  let groups: NotificationGroups;
  let jobs: NotificationJob[];

  beforeEach(async () => {
    groups = new NotificationGroups(own.redis);
    const rule = await own.createRule();
    jobs = Array.from({ length: 4 }, (_, repeat) => makeJob(rule, { repeat, atMs: nowMs + repeat }));
  });

  it('is the same whenever a job is carried out again, also after its mail was sent', async () => {
    const [first, second, third] = jobs as [NotificationJob, NotificationJob, NotificationJob];
    expect(await groups.claim(first, nowMs)).toEqual({ kind: 'send' });
    const joined = await groups.claim(second, nowMs + 1);
    expect(joined).toMatchObject({ kind: 'join', atMs: nowMs + MINUTE_MS });
    expect(await groups.claim(first, nowMs + 2)).toEqual({ kind: 'send' });
    await groups.finish(first, true, nowMs + 10);
    if (joined.kind !== 'join') throw new TypeError('expected to join');
    const group = { id: 'group-1', group: joined.group };
    const wait = await groups.close(group, nowMs + 11);
    expect(wait).toEqual({ kind: 'wait', atMs: nowMs + 10 + MINUTE_MS });
    const due = nowMs + 10 + MINUTE_MS;
    const closed = await groups.close(group, due);
    expect(closed).toMatchObject({ kind: 'send', items: [{ id: second.id }] });
    // What comes after it was fixed is in the next one, also when the mail is repeated after a crash.
    const next = await groups.claim(third, due + 1);
    expect(next.kind === 'join' && next.group.batch).not.toBe(joined.group.batch);
    expect(await groups.claim(second, due + 2)).toMatchObject({ kind: 'join', group: joined.group });
    expect(await groups.close(group, due + 3)).toEqual(closed);
    await groups.finish({ ...second, id: 'group-1' }, true, due + 4);
    expect(await groups.close(group, due + 5)).toEqual(closed);
  });

  it('is forgotten after an hour, and a batch an hour after its mail', async () => {
    const HOUR_MS = 3_600_000;
    const [first, second] = jobs as [NotificationJob, NotificationJob];
    await groups.claim(first, nowMs);
    const joined = await groups.claim(second, nowMs + 1);
    if (joined.kind !== 'join') throw new TypeError('expected to join');
    const items = `${joined.group.key}:${joined.group.batch}`;
    for (const { id } of [first, second]) {
      const leftMs = await own.server.raw.pttl(`{${own.redis.prefix}-notify}:decision:${id}`);
      expect(leftMs).toBeGreaterThan(HOUR_MS / 2);
      expect(leftMs).toBeLessThanOrEqual(HOUR_MS);
    }
    // While its mail waits it must outlive a long absence of all notifiers.
    expect(await own.server.raw.pttl(items)).toBeGreaterThan(24 * HOUR_MS);
    await groups.finish({ ...second, id: 'group-1' }, true, nowMs + 2, joined.group.batch);
    expect(await own.server.raw.pttl(items)).toBeLessThanOrEqual(HOUR_MS);
  });

  it('lets the next mail go when one that was under way vanished', async () => {
    const [first, second] = jobs as [NotificationJob, NotificationJob];
    await groups.claim(first, nowMs);
    const joined = await groups.claim(second, nowMs + 1);
    if (joined.kind !== 'join') throw new TypeError('expected to join');
    const group = { id: 'group-1', group: joined.group };
    expect(await groups.close(group, nowMs + 2 * MINUTE_MS)).toMatchObject({ kind: 'wait' });
    expect(await groups.close(group, nowMs + 8 * MINUTE_MS)).toMatchObject({ kind: 'send' });
  });

  it('does not wait long when the clock was set back', async () => {
    const [first, second] = jobs as [NotificationJob, NotificationJob];
    await groups.claim(first, nowMs);
    await groups.finish(first, true, nowMs);
    const backMs = nowMs - 3_600_000;
    expect(await groups.claim(second, backMs)).toMatchObject({ kind: 'join', atMs: backMs + MINUTE_MS });
  });
});
