import type { AlertQueries } from '@logpond/db/alert-queries';
import type { AlertRules } from '@logpond/db/alert-rules';
import type { RedisStore } from '@logpond/db/connect';
import { MailAllowance } from '@logpond/db/notification-allowance';
import { NotificationGroups } from '@logpond/db/notification-group';
import type { NotificationQueue } from '@logpond/db/notification-queue';
import type { WorkOptions } from '@logpond/db/notification-work';
import type { Projects } from '@logpond/db/projects';
import { SecretSealer } from '@logpond/db/sealed-secret';
import { declareCounter } from '@logpond/runtime/metrics';
import type { Log } from '@logpond/runtime/log';
import { openEmailChannel } from './channels/email.ts';
import type { EmailChannel } from './channels/email.ts';
import type { Sent } from './channels/notice.ts';
import type { WebhookOptions } from './channels/webhook.ts';
import { Delivery } from './channels/delivery.ts';
import type { AlertWorkerConfig } from './config.ts';
import { parseNetworks } from './webhook-egress.ts';

/** Mails that are sent at the same time, and as many webhooks. */
const CONCURRENCY = 20;
/** Failures of the queue are said so often at most. */
const SAY_EVERY_MS = 10_000;

export type NotifierDeps = {
  config: AlertWorkerConfig;
  queue: NotificationQueue;
  redis: RedisStore;
  rules: Pick<AlertRules, 'find'>;
  projects: Pick<Projects, 'find'>;
  queries: Pick<AlertQueries, 'samples'>;
  log: Log;
  now: () => number;
  /** Tests only: pauses between attempts and between mails, and a name server. */
  pauseBeforeRetry?: WorkOptions['pauseBeforeRetry'];
  mailIntervalMs?: number;
  webhook?: Pick<WebhookOptions, 'resolve'>;
};

/** What the parts of the notifier work with. */
export type NotifierParts = Pick<
  NotifierDeps,
  'queue' | 'redis' | 'rules' | 'projects' | 'queries' | 'log' | 'now'
> & {
  groups: NotificationGroups;
  allowance: MailAllowance;
  email: EmailChannel;
  webhook: WebhookOptions & { sealer: SecretSealer | undefined };
  publicUrl: string;
  /** Aborted when the notifier stops. */
  signal: AbortSignal;
  /** What this process has sent lately, by job: not sent again when only the word of it was lost. */
  recent: Map<string, Sent>;
};

/**
 * Sends the notifications of the queue, each at least once, until it is disposed.
 *
 * @throws {StoreError} `unavailable` when Redis does not answer within 60 s.
 */
export async function startNotifier(deps: NotifierDeps): Promise<AsyncDisposable> {
  const { config, queue, log } = deps;
  const stopped = new AbortController();
  const email = openEmailChannel(config, (path, { items }) =>
    log.info(
      { path, firingId: items[0].firingId },
      'mail is not configured; a message was written to a file',
    ),
  );
  sayHowMailLeaves(email, config, log);
  const delivery = new Delivery(makeParts(deps, email, stopped.signal));
  const work = await queue
    .work(async (job, attempt) => delivery.carryOut(job, attempt), {
      concurrency: CONCURRENCY,
      onError: sayNowAndThen(log),
      ...(deps.pauseBeforeRetry !== undefined && { pauseBeforeRetry: deps.pauseBeforeRetry }),
    })
    .catch((error: unknown) => {
      email.close();
      throw error;
    });
  return {
    async [Symbol.asyncDispose]() {
      stopped.abort();
      await work[Symbol.asyncDispose]();
      email.close();
    },
  };
}

function makeParts(deps: NotifierDeps, email: EmailChannel, signal: AbortSignal): NotifierParts {
  const { config, redis, now } = deps;
  return {
    ...deps,
    groups: new NotificationGroups(redis, {
      ...(deps.mailIntervalMs !== undefined && { intervalMs: deps.mailIntervalMs }),
    }),
    allowance: new MailAllowance(redis, {
      perRecipient: config.MAIL_PER_RECIPIENT_DAY_MAX,
      perProject: config.MAIL_PER_PROJECT_DAY_MAX,
    }),
    email,
    webhook: {
      ...deps.webhook,
      now,
      egress: {
        allowHttp: config.WEBHOOK_ALLOW_HTTP,
        allowedNetworks: parseNetworks(config.WEBHOOK_ALLOWED_NETWORKS),
      },
      sealer: SecretSealer.parse(config.SECRET_KEYS),
    },
    publicUrl: config.PUBLIC_URL,
    signal,
    recent: new Map(),
  };
}

function sayHowMailLeaves({ mode }: EmailChannel, config: AlertWorkerConfig, log: Log): void {
  if (mode === 'outbox') {
    const directory = config.MAIL_OUTBOX_DIR;
    log.warn({ directory }, 'SMTP_URL is not set: mails are written to files instead of being sent');
  } else if (mode === 'none') {
    log.warn('SMTP_URL is not set: notifications by e-mail are not sent');
  }
}

/** While Redis is away there is a failure for each connection and second. */
function sayNowAndThen(log: Log): (error: Error) => void {
  let saidAtMs = -Infinity;
  return (error) => {
    queueFailures.inc();
    if (performance.now() - saidAtMs < SAY_EVERY_MS) return;
    saidAtMs = performance.now();
    log.warn({ err: error }, 'the queue of notifications failed');
  };
}

const queueFailures = declareCounter('logpond_notifier_queue_failures_total', {
  help: 'Failures of the queue of notifications, such as a lost connection; its jobs are taken up again.',
});
