import { randomBytes } from 'node:crypto';
import { shardKeys } from '@logpond/db/shard-map';
import type { AppProcess } from '../../support/app-process.ts';
import { SmtpSink } from '../../support/smtp-sink.ts';
import { waitFor } from '../../support/wait.ts';
import { WebhookSink } from '../../support/webhook-sink.ts';
import { AlertApi } from './alert-api.ts';
import { Rig } from './rig.ts';
import type { ApiProcess, RigOptions } from './rig.ts';
import { KEY_PREFIX } from './rig-state.ts';
import { createTenants } from './rig-tenants.ts';
import type { OwnedTenant } from './rig-tenants.ts';

const BUDGET_BYTES = 1_073_741_824;

/** An installation whose alerts go to servers of the test: mail over SMTP, webhooks over HTTP. */
export class AlertRig implements AsyncDisposable {
  readonly rig: Rig;
  readonly api: ApiProcess;
  readonly alerts: AlertApi;
  readonly smtp: SmtpSink;
  readonly webhooks: WebhookSink;
  /** All that were made. */
  readonly tenants: OwnedTenant[] = [];
  readonly #stack: AsyncDisposableStack;
  readonly #workers = new Set<AppProcess>();

  private constructor(
    rig: Rig,
    api: ApiProcess,
    sinks: { smtp: SmtpSink; webhooks: WebhookSink },
    stack: AsyncDisposableStack,
  ) {
    this.rig = rig;
    this.api = api;
    this.alerts = new AlertApi(api.url);
    this.smtp = sinks.smtp;
    this.webhooks = sinks.webhooks;
    this.#stack = stack;
  }

  /** Starts stores, an ingest worker, an API and both servers; no alert worker yet. */
  static async open(options: RigOptions): Promise<AlertRig> {
    await using starting = new AsyncDisposableStack();
    const smtp = starting.use(await SmtpSink.open());
    const webhooks = starting.use(await WebhookSink.open());
    const env = {
      SMTP_URL: smtp.url,
      // These runs mail a recipient more often in a day than people want.
      MAIL_PER_RECIPIENT_DAY_MAX: '1000000',
      MAIL_PER_PROJECT_DAY_MAX: '1000000',
      MAIL_FROM: 'Logpond <alerts@logpond.example>',
      PUBLIC_URL: 'https://logpond.example',
      WEBHOOK_ALLOW_HTTP: 'true',
      WEBHOOK_ALLOWED_NETWORKS: '127.0.0.0/8',
      SECRET_KEYS: `test:${randomBytes(32).toString('base64')}`,
      RULE_POLL_MS: '2000',
      ...options.env,
    };
    const rig = starting.use(await Rig.open({ ...options, env }));
    rig.startWorker();
    const api = await rig.startApi();
    return new AlertRig(rig, api, { smtp, webhooks }, starting.move());
  }

  /** Starts an alert worker; it takes its shards at once when those of a killed one were freed. */
  startWorker(env: Readonly<Record<string, string>> = {}): AppProcess {
    const worker = this.rig.startAlertWorker(env);
    this.#workers.add(worker);
    return worker;
  }

  /** SIGKILL to all alert workers; their shards are free at once. */
  async killWorkers(): Promise<void> {
    await Promise.all([...this.#workers].map(async (worker) => this.rig.killApp(worker)));
    this.#workers.clear();
    await this.rig.expireLeases('alert');
  }

  /** Makes `perShard` projects on each shard, with key and session. */
  async createTenants(perShard: number): Promise<OwnedTenant[]> {
    const settings = {
      REDIS_URL: this.rig.env['REDIS_URL'] ?? '',
      KEY_PREFIX,
      SHARDS: this.rig.shards,
      REDIS_BUDGET_BYTES: Number(this.rig.env['REDIS_BUDGET_BYTES'] ?? BUDGET_BYTES),
    };
    const tenants = await createTenants(settings, perShard);
    this.tenants.push(...tenants);
    return tenants;
  }

  /** Waits until everything admitted is stored and counted, and everything that follows from it is in the history. */
  async waitForRest(timeoutMs = 60_000): Promise<void> {
    await this.rig.waitForRest(timeoutMs);
    await this.waitUntilCounted(timeoutMs);
    await waitFor('outboxes and histories to be empty', async () => this.#isCarriedOn(), timeoutMs);
  }

  /** Waits until the alert worker has counted everything in the streams. */
  async waitUntilCounted(timeoutMs = 60_000): Promise<void> {
    await waitFor(
      'everything to be counted',
      async () => {
        const shards = await this.#readStates(['next', 'alert:done', 'controls', 'alert:controls']);
        return shards.every(([next, done, controls, seen]) => {
          return (next ?? '1') === (done ?? '1') && (controls ?? '0') === (seen ?? '0');
        });
      },
      timeoutMs,
    );
  }

  /** How many entries a rule's window has counted since it began, as it lies in Redis. */
  async readCounted({ shard }: OwnedTenant, ruleId: string): Promise<number> {
    return Number((await this.rig.redis.hget(shardKeys(KEY_PREFIX, shard).window(ruleId), 'counted')) ?? 0);
  }

  async #readStates(fields: string[]): Promise<(string | null)[][]> {
    const shards = Array.from({ length: this.rig.shards }, (_, shard) => shardKeys(KEY_PREFIX, shard).state);
    return Promise.all(shards.map(async (state) => this.rig.redis.hmget(state, ...fields)));
  }

  async #isCarriedOn(): Promise<boolean> {
    const keys = Array.from({ length: this.rig.shards }, (_, shard) => shardKeys(KEY_PREFIX, shard));
    const lengths = await Promise.all(
      keys.flatMap(({ outbox, history }) => [this.rig.redis.llen(outbox), this.rig.redis.llen(history)]),
    );
    if (lengths.some((length) => length > 0)) throw new Error(`there are ${lengths.join(', ')} items`);
    return true;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}
