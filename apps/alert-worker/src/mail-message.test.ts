import { createTransport } from 'nodemailer';
import { describe, expect, it } from 'vitest';
import { composeMail } from './mail-message.ts';
import type { Notice } from './channels/notice.ts';
import { makeItem, makeNotice, makeRule } from './notice.test-support.ts';

const TO = 'ops@example.com';
const DOMAIN = 'logpond.example';
const HOSTILE = 'x\r\nBcc: evil@example.com\r\n\r\n<script>alert(1)</script>\u202e';

function compose(changes: Partial<Notice> = {}): ReturnType<typeof composeMail> {
  return composeMail(makeNotice(changes), TO, DOMAIN);
}

describe('a mail', () => {
  it('says in its subject and first line what happened', () => {
    const { subject, text } = compose();
    expect(subject).toBe('[FIRING] Many errors: 57 ≥ 50 in 5m (Shop)');
    expect(text.split('\n')[0]).toBe(
      'The alert rule "Many errors" fired: 57 entries matched within 5m, its threshold is 50.',
    );
  });

  it('of an end says resolved, below the threshold', () => {
    const item = makeItem({ kind: 'resolved', count: 1, resolvedAtMs: Date.UTC(2026, 10, 21, 20) });
    const { subject, text } = compose({ items: [item] });
    expect(subject).toBe('[RESOLVED] Many errors: 1 < 50 in 5m (Shop)');
    expect(text).toContain('is resolved: 1 entry matched within 5m');
    expect(text).toContain('Resolved at: 2026-11-21 20:00:00 UTC');
    expect(text).toContain('Peak:        57');
  });

  it('of a firing that lasts says still', () => {
    const item = makeItem({ kind: 'renotified', repeat: 2, count: 80, peak: 80 });
    expect(compose({ items: [item] }).subject).toBe('[FIRING] Many errors: still 80 ≥ 50 in 5m (Shop)');
  });

  it('holds count, threshold, window, start, condition, entries and the link, as text and as HTML', () => {
    const rule = makeRule({ service: 'payment' });
    const sample = {
      time: '2026-11-21T19:45:00.5Z',
      level: 'error',
      service: 'payment',
      message: 'card & <bank>',
    };
    const { text, html } = compose({ rule, samples: [sample] });
    const url = 'https://logs.example.com/api/v1/logs?projectId=1&from=2&to=3';
    for (const part of ['57', '50', '5m', '2026-11-21 19:45:01 UTC', url]) expect(text).toContain(part);
    expect(text).toContain('level equals "error" in service "payment"');
    expect(text).toContain('2026-11-21T19:45:00.5Z ERROR payment: card & <bank>');
    expect(html).toContain('card &amp; &lt;bank&gt;');
    expect(html).toContain(`<a href="${url.replaceAll('&', '&amp;')}">`);
  });

  it('has a Message-ID by firing, kind, repeat and recipient, and never another', () => {
    const ids = [
      compose(),
      compose({ items: [makeItem({ kind: 'resolved' })] }),
      compose({ items: [makeItem({ kind: 'renotified', repeat: 1 })] }),
      compose({ items: [makeItem({ kind: 'renotified', repeat: 2 })] }),
      compose({ items: [makeItem({ firingId: '0190a5e0-0000-7000-8000-0000000000f2' })] }),
      composeMail(makeNotice(), 'dev@example.com', DOMAIN),
    ].map(({ messageId }) => messageId);
    expect(new Set(ids).size).toBe(6);
    expect(compose({ samples: [], project: { id: 'x', name: 'Renamed' } }).messageId).toBe(ids[0]);
    expect(ids[0]).toMatch(/^<[A-Za-z0-9.-]+@logpond\.example>$/);
    // What follows a firing refers to its mail.
    expect(compose({ items: [makeItem({ kind: 'resolved' })] }).references).toBe(ids[0]);
  });

  it('for several notifications counts and lists them, a hundred at most', () => {
    const firings = Array.from(
      { length: 130 },
      (_, index) => `0190a5e0-0000-7000-8000-${String(index).padStart(12, '0')}`,
    );
    const [first, ...rest] = firings.map((firingId) => makeItem({ firingId }));
    if (first === undefined) throw new RangeError('expected firings');
    const { subject, text, headers } = compose({ id: 'group-1', items: [first, ...rest] });
    expect(subject).toBe('[FIRING] Many errors: 130 notifications, last 57 ≥ 50 in 5m (Shop)');
    expect(text).toContain(firings[99]);
    expect(text).not.toContain(firings[100]);
    expect(text).toContain('and 30 more');
    expect(headers.filter(({ key }) => key === 'X-Logpond-Firing')).toHaveLength(100);
  });

  it('names each firing once in its headers, however many of its notifications it holds', () => {
    const other = '0190a5e0-0000-7000-8000-0000000000f2';
    const first = makeItem();
    const rest = [
      makeItem({ kind: 'renotified', repeat: 1 }),
      makeItem({ kind: 'resolved' }),
      makeItem({ firingId: other }),
    ];
    const { headers } = compose({ id: 'group-1', items: [first, ...rest] });
    const named = headers.filter(({ key }) => key === 'X-Logpond-Firing').map(({ value }) => value);
    expect(named).toEqual([first.firingId, other]);
  });

  it('calls all entries only what a search can find exactly', () => {
    const { search } = makeNotice();
    expect(compose().text).toContain(`\nAll entries:\n${search.url}\n`);
    const { text, html } = compose({ search: { ...search, isExact: false } });
    expect(`${text}${html}`).not.toContain('All entries');
    expect(text).toContain(`\nEntries of that time, those that matched among them:\n${search.url}\n`);
  });
});

describe('hostile names', () => {
  it('add no header, no line and no markup', async () => {
    const rule = makeRule({
      name: HOSTILE,
      service: HOSTILE,
      condition: {
        field: `metadata.${HOSTILE}`,
        operator: 'equals',
        value: HOSTILE,
        threshold: 1,
        timeWindow: '5m',
      },
    });
    const samples = [{ time: HOSTILE, level: HOSTILE, service: HOSTILE, message: HOSTILE }];
    const message = compose({ rule, project: { id: 'p', name: HOSTILE }, samples });
    expect(message.subject).not.toMatch(/[\r\n\u202e]/);
    expect(message.text.split('\n').filter((line) => line.startsWith('Bcc'))).toEqual([]);
    expect(message.html).not.toContain('<script');
    const transport = createTransport({ streamTransport: true, buffer: true });
    const { references, ...mail } = message;
    const { message: raw, envelope } = await transport.sendMail({
      ...mail,
      from: 'a@logpond.example',
      references: references ?? '',
    });
    const head = (raw as Buffer).toString('utf8').split('\n\n')[0] ?? '';
    expect(head).not.toMatch(/^bcc:/im);
    expect(envelope.to).toEqual([TO]);
  });

  it('a link of another scheme cannot be made of them', () => {
    const { html } = compose({ rule: makeRule({ name: 'javascript:alert(1)' }) });
    expect([...html.matchAll(/href="([^"]*)"/g)].map(([, href]) => href?.split(':')[0])).toEqual(['https']);
  });
});
