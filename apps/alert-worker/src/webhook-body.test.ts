import { expect, it } from 'vitest';
import { makeItem, makeNotice } from './notice.test-support.ts';
import { renderWebhookBody, signWebhook } from './webhook-body.ts';

it('signs time and body with HMAC-SHA256', () => {
  // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac s3cret
  const mac = '1698a50bc74d1ff1db85c4e0a5297c2ad9fdba245d5737cdb789e4cc6e098940';
  expect(signWebhook('s3cret', '{"a":1}', 1_700_000_000_999)).toBe(`t=1700000000,v1=${mac}`);
});

it('gives another signature for another secret, body or second', () => {
  const signatures = [
    signWebhook('s3cret', '{}', 1_000),
    signWebhook('other', '{}', 1_000),
    signWebhook('s3cret', '{ }', 1_000),
    signWebhook('s3cret', '{}', 2_000),
  ].map((signature) => signature.split('v1=')[1]);
  expect(new Set(signatures).size).toBe(4);
});

it('tells of a firing and of its end, and repeats with the same bytes', () => {
  const notice = makeNotice({
    samples: [{ time: '2026-11-21T19:45:00Z', level: 'error', service: 'web', message: 'no' }],
  });
  expect(renderWebhookBody(notice)).toBe(renderWebhookBody(notice));
  expect(JSON.parse(renderWebhookBody(notice))).toEqual({
    id: '0190a5e0-0000-7000-8000-0000000000f1',
    type: 'alert.firing',
    rule: { id: notice.rule.id, name: 'Many errors' },
    project: { id: notice.project.id, name: 'Shop' },
    count: 57,
    threshold: 50,
    window: '5m',
    startedAt: '2026-11-21T19:45:01.000Z',
    resolvedAt: null,
    peak: 57,
    repeat: 0,
    samples: notice.samples,
    url: notice.search.url,
  });
  const item = makeItem({ kind: 'resolved', resolvedAtMs: Date.UTC(2026, 10, 21, 20) });
  expect(JSON.parse(renderWebhookBody(makeNotice({ items: [item] })))).toMatchObject({
    type: 'alert.resolved',
    resolvedAt: '2026-11-21T20:00:00.000Z',
  });
});

it('of a test says test, in the place of what it tells of otherwise', () => {
  expect(JSON.parse(renderWebhookBody(makeNotice({ isTest: true })))).toMatchObject({ type: 'alert.test' });
});
