import { createHmac } from 'node:crypto';
import type { Notice, NoticeItem } from './channels/notice.ts';

/** The JSON of a webhook; the same notice gives the same bytes. Times are RFC 3339. */
export function renderWebhookBody(notice: Notice): string {
  const { rule, project, samples, search, isTest } = notice;
  const item = notice.items.at(-1) ?? notice.items[0];
  return JSON.stringify({
    id: item.firingId,
    type: isTest ? 'alert.test' : item.kind === 'resolved' ? 'alert.resolved' : 'alert.firing',
    rule: { id: rule.id, name: rule.name },
    project,
    count: item.count,
    threshold: rule.condition.threshold,
    window: rule.condition.timeWindow,
    startedAt: new Date(item.startedAtMs).toISOString(),
    ...describeRest(item),
    samples,
    url: search.url,
  });
}

function describeRest(item: NoticeItem): Record<string, unknown> {
  return {
    resolvedAt: item.resolvedAtMs === null ? null : new Date(item.resolvedAtMs).toISOString(),
    peak: item.peak,
    repeat: item.repeat,
  };
}

/**
 * The header X-Logpond-Signature: `t=<unix seconds>,v1=<hex HMAC-SHA256 of "<t>.<body>" under the secret>`. A receiver
 * computes the same and refuses what differs, or whose t is minutes old.
 */
export function signWebhook(secret: string, body: string, nowMs: number): string {
  const t = Math.floor(nowMs / 1_000);
  return `t=${t},v1=${createHmac('sha256', secret).update(`${t}.${body}`).digest('hex')}`;
}
