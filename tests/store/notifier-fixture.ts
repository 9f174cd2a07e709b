import { randomBytes } from 'node:crypto';
import { configSchema } from '@logpond/alert-worker/config';
import { startNotifier } from '@logpond/alert-worker/notifier';
import type { NotifierDeps } from '@logpond/alert-worker/notifier';
import type { HistoryRow } from '@logpond/db/alert-history';
import { AlertQueries } from '@logpond/db/alert-queries';
import { AlertRules } from '@logpond/db/alert-rules';
import { connectClickHouse } from '@logpond/db/clickhouse';
import type { RedisStore } from '@logpond/db/connect';
import { ControlStore } from '@logpond/db/control-store';
import { NotificationQueue } from '@logpond/db/notification-queue';
import { Projects } from '@logpond/db/projects';
import type { AlertRuleDocument } from '@logpond/db/rule-change';
import { RuleStream } from '@logpond/db/rule-stream';
import { SecretSealer } from '@logpond/db/sealed-secret';
import { shardKeys } from '@logpond/db/shard-map';
import { createLog } from '@logpond/runtime/log';
import type { AlertRuleDraft } from '@logpond/schema/alert-rule';
import { SmtpSink } from '../support/smtp-sink.ts';
import { waitFor } from '../support/wait.ts';
import { createProject, operator } from './control-plane-fixture.ts';
import { StreamFixture } from './stream-fixture.ts';

export type Delivery = Extract<HistoryRow, { type: 'delivery' }>;

const SECRET_KEYS = `test:${randomBytes(32).toString('base64')}`;
const DRAFT: AlertRuleDraft = {
  name: 'Many errors',
  enabled: true,
  condition: { field: 'level', operator: 'equals', value: 'error', threshold: 50, timeWindow: '5m' },
  notifications: [{ type: 'email', config: { recipients: ['ops@example.com'] } }],
};

/** A project "Shop" on a redis-server of its own, a queue of notifications and a mail server. */
export class NotifierFixture implements AsyncDisposable {
  readonly stack: AsyncDisposableStack;
  readonly server: StreamFixture;
  readonly redis: RedisStore;
  readonly rules: AlertRules;
  readonly queue: NotificationQueue;
  readonly smtp: SmtpSink;
  readonly projectId: string;

  private constructor(parts: FixtureParts) {
    this.stack = parts.stack;
    this.server = parts.server;
    this.redis = parts.redis;
    this.rules = parts.rules;
    this.queue = parts.queue;
    this.smtp = parts.smtp;
    this.projectId = parts.projectId;
  }

  static async open(): Promise<NotifierFixture> {
    await using starting = new AsyncDisposableStack();
    const server = starting.use(await StreamFixture.open());
    const { redis } = await server.begin();
    starting.use(redis);
    const control = new ControlStore(redis);
    const { projectId } = await createProject(control);
    const sealer = SecretSealer.parse(SECRET_KEYS);
    const rules = new AlertRules(control, { stream: new RuleStream(redis), shards: 1, sealer });
    const queue = starting.use(await NotificationQueue.open(server.settings()));
    const smtp = starting.use(await SmtpSink.open());
    return new NotifierFixture({ stack: starting.move(), server, redis, rules, queue, smtp, projectId });
  }

  /** A notifier in this process, with a ClickHouse that is away: samples are no part of these tests. */
  async startNotifier(
    settings: Record<string, string> = {},
    changes: Partial<NotifierDeps> = {},
  ): Promise<AsyncDisposable> {
    const config = configSchema.parse({
      SMTP_URL: this.smtp.url,
      MAIL_FROM: 'Logpond <alerts@logpond.example>',
      WEBHOOK_ALLOW_HTTP: 'true',
      WEBHOOK_ALLOWED_NETWORKS: '127.0.0.0/8',
      CLICKHOUSE_URL: 'http://127.0.0.1:9',
      SECRET_KEYS,
      ...settings,
    });
    const { queue, redis, rules, stack } = this;
    const clickhouse = stack.use(connectClickHouse(config));
    const notifier = await startNotifier({
      config,
      queue,
      redis,
      rules,
      projects: new Projects(new ControlStore(redis)),
      queries: new AlertQueries(clickhouse),
      log: createLog('alert-worker', 'silent'),
      now: Date.now,
      pauseBeforeRetry: () => 20,
      ...changes,
    });
    return stack.use(notifier);
  }

  async createRule(draft: Partial<AlertRuleDraft> = {}): Promise<AlertRuleDocument> {
    return this.rules.create(operator, this.projectId, { ...DRAFT, ...draft });
  }

  async deleteRule({ id }: AlertRuleDocument): Promise<void> {
    await this.rules.remove(operator, this.projectId, id);
  }

  /** The rows of deliveries on their way to ClickHouse, oldest first. */
  async readDeliveries(): Promise<Delivery[]> {
    const texts = await this.server.raw.lrange(shardKeys(this.redis.prefix, 0).history, 0, -1);
    return texts.map((text) => JSON.parse(text) as Delivery);
  }

  async waitForDelivery(status: Delivery['status'], times = 1): Promise<Delivery[]> {
    return waitFor(`${times} × ${status} in the history`, async () => {
      const found = (await this.readDeliveries()).filter((row) => row.status === status);
      return found.length >= times && found;
    });
  }

  /** Notifications of the project that have a place in the queue. */
  async countRoom(channel: Delivery['channel']): Promise<number> {
    return this.server.raw.zcard(`{${this.redis.prefix}-notify}:waiting:${channel}:${this.projectId}`);
  }

  async waitUntilDone(jobId: string): Promise<void> {
    const done = `{${this.redis.prefix}-notify}:mails:completed`;
    await waitFor('the job to be done', async () => (await this.server.raw.zscore(done, jobId)) !== null);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stack.disposeAsync();
  }
}

type FixtureParts = Pick<
  NotifierFixture,
  'stack' | 'server' | 'redis' | 'rules' | 'queue' | 'smtp' | 'projectId'
>;
