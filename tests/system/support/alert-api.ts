import { randomUUID } from 'node:crypto';
import type { OwnedTenant } from './rig-tenants.ts';
import { waitFor } from '../../support/wait.ts';

const TIMEOUT_MS = 30_000;
const WAIT_MS = 60_000;
const PAGE = 1_000;

/** A rule as it is sent; the tests send the nested form. */
export type RuleDraft = {
  name: string;
  enabled: boolean;
  condition: { field: string; operator: string; value?: unknown; threshold: number; timeWindow: string };
  notifications: unknown[];
  service?: string | null;
  renotifyAfter?: string | null;
  notifyResolved?: boolean;
};

export type ShownRule = { id: string; state: 'ok' | 'firing'; lastTriggeredAt: string | null; name: string };

/** A firing as GET …/alerts/history gives it. */
export type ShownFiring = {
  id: string;
  ruleId: string;
  ruleName: string;
  startedAt: string;
  resolvedAt: string | null;
  count: number;
  threshold: number;
  timeWindow: string;
  deliveries: {
    channel: string;
    target: string;
    status: string;
    attempts: number;
    lastError: string | null;
  }[];
};

export type Preview = {
  firings: { startedAt: string; resolvedAt: string | null; peak: number }[];
  maxCount: number;
};

export type SentEntry = {
  time?: string;
  service: string;
  level: string;
  message: string;
  metadata?: Record<string, unknown>;
};

/** What a call is made through: `fetch` for a process, the app's own for one in this process. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** The routes of alerts and ingest of one API, for the tests of alerts. */
export class AlertApi {
  readonly #url: string;
  readonly #fetch: Fetch;

  /** @param url of the API, without a path. */
  constructor(url: string, fetchFrom: Fetch = fetch) {
    this.#url = url;
    this.#fetch = fetchFrom;
  }

  /** @returns the rule's id; from here on it counts. */
  async createRule(tenant: OwnedTenant, draft: RuleDraft): Promise<string> {
    const path = `/projects/${tenant.projectId}/alerts`;
    const { alertRule } = await this.#ask<{ alertRule: ShownRule }>(tenant, 'POST', path, 201, draft);
    return alertRule.id;
  }

  async changeRule(tenant: OwnedTenant, ruleId: string, change: Partial<RuleDraft>): Promise<void> {
    await this.#ask(tenant, 'PATCH', `/projects/${tenant.projectId}/alerts/${ruleId}`, 200, change);
  }

  async deleteRule(tenant: OwnedTenant, ruleId: string): Promise<void> {
    await this.#ask(tenant, 'DELETE', `/projects/${tenant.projectId}/alerts/${ruleId}`, 204);
  }

  async listRules(tenant: OwnedTenant): Promise<ShownRule[]> {
    const path = `/projects/${tenant.projectId}/alerts`;
    return (await this.#ask<{ alertRules: ShownRule[] }>(tenant, 'GET', path, 200)).alertRules;
  }

  /** All firings of a project, page by page. */
  async listHistory(tenant: OwnedTenant, limit = PAGE): Promise<ShownFiring[]> {
    const firings: ShownFiring[] = [];
    let cursor: string | null = null;
    do {
      const params: URLSearchParams = new URLSearchParams({ limit: String(limit) });
      if (cursor !== null) params.set('cursor', cursor);
      const path = `/projects/${tenant.projectId}/alerts/history?${params.toString()}`;
      type Page = { history: ShownFiring[]; nextCursor: string | null };
      const page: Page = await this.#ask<Page>(tenant, 'GET', path, 200);
      firings.push(...page.history);
      cursor = page.nextCursor;
    } while (cursor !== null);
    return firings;
  }

  async preview(tenant: OwnedTenant, draft: RuleDraft, from: Date, to: Date): Promise<Preview> {
    const path = `/projects/${tenant.projectId}/alerts/preview`;
    const body = { ...draft, from: from.toISOString(), to: to.toISOString() };
    return this.#ask<Preview>(tenant, 'POST', path, 200, body);
  }

  /**
   * Sends a batch until it is acknowledged, under one key, so that it is stored once.
   *
   * @throws {Error} when it is refused for good, or acknowledged in part.
   */
  async send(tenant: OwnedTenant, entries: readonly SentEntry[]): Promise<void> {
    const { status, text } = await this.#answer('POST', '/ingest', {
      headers: { 'X-API-Key': tenant.apiKey, 'Idempotency-Key': randomUUID() },
      body: { logs: entries },
    });
    const received = status === 200 ? (JSON.parse(text) as { received: number }).received : 0;
    if (received !== entries.length)
      throw new Error(
        `expected ${entries.length} entries acknowledged, got ${status}: ${text.slice(0, 300)}`,
      );
  }

  async #ask<Answer>(
    tenant: OwnedTenant,
    method: string,
    path: string,
    status: number,
    body?: unknown,
  ): Promise<Answer> {
    const headers = { Authorization: `Bearer ${tenant.session}` };
    const { status: found, text } = await this.#answer(method, path, { headers, body });
    if (found !== status) throw new Error(`expected ${status} of ${method} ${path}, got ${found}: ${text}`);
    return (text === '' ? undefined : JSON.parse(text)) as Answer;
  }

  /** Calls a route until it answers with anything but 503 or 429: what a store is out of reach for, comes again. */
  async #answer(
    method: string,
    path: string,
    { headers, body }: { headers: Record<string, string>; body: unknown },
  ): Promise<{ status: number; text: string }> {
    const content = body === undefined ? {} : { body: JSON.stringify(body) };
    return waitFor(
      `an answer to ${method} ${path}`,
      async () => {
        const answer = await this.#fetch(`${this.#url}/api/v1${path}`, {
          method,
          headers: { ...headers, 'Content-Type': 'application/json' },
          ...content,
          signal: AbortSignal.timeout(TIMEOUT_MS),
        });
        const answered = { status: answer.status, text: await answer.text() };
        if (answered.status === 503 || answered.status === 429)
          throw new Error(`${answered.status} ${answered.text}`);
        return answered;
      },
      WAIT_MS,
    );
  }
}
