import { Accounts } from '@logpond/db/accounts';
import { AlertHistory } from '@logpond/db/alert-history';
import { AlertQueries } from '@logpond/db/alert-queries';
import { AlertRules } from '@logpond/db/alert-rules';
import { readRuleStates } from '@logpond/db/alert-windows';
import { ApiKeys } from '@logpond/db/api-keys';
import { connectClickHouse } from '@logpond/db/clickhouse';
import type { ClickHouseStore } from '@logpond/db/clickhouse';
import { connectRedis } from '@logpond/db/connect';
import type { RedisStore } from '@logpond/db/connect';
import { ControlStore, installationSecret } from '@logpond/db/control-store';
import { DeadLetters } from '@logpond/db/dead-letters';
import { LogStore } from '@logpond/db/log-store';
import { LogStream } from '@logpond/db/log-stream';
import { checkSchema } from '@logpond/db/migrate';
import { NotificationQueue } from '@logpond/db/notification-queue';
import { Organizations } from '@logpond/db/organizations';
import { isAdmitting } from '@logpond/db/prepare';
import { Projects } from '@logpond/db/projects';
import { RuleStream } from '@logpond/db/rule-stream';
import { SecretSealer } from '@logpond/db/sealed-secret';
import type { Log } from '@logpond/runtime/log';
import { createApp } from './app.ts';
import type { ApiApp } from './app.ts';
import type { ApiDeps } from './api-deps.ts';
import { BodyMemory } from './body-memory.ts';
import type { ApiConfig } from './config.ts';
import { IngestFlush } from './ingest-flush.ts';
import { Readiness } from './readiness.ts';
import { SchemaGate } from './schema-gate.ts';
import { SetupGate } from './setup-gate.ts';
import { StreamRegistry } from './stream-registry.ts';
import { TailHub } from './tail-hub.ts';

/** An API that is open but does not listen yet. */
export type OpenApi = {
  app: ApiApp;
  deps: ApiDeps;
  /** Waits for the schema of ClickHouse; the API is not ready before, and cannot go on when this throws. */
  waitForSchema: (signal: AbortSignal) => Promise<void>;
};

/**
 * Opens the stores and wires the API: the process and the contract tests run exactly this.
 *
 * Everything goes on `stack` and is closed in reverse: streams ended, batches in hand stored, then the stores.
 *
 * @throws {StoreError} unavailable when Redis cannot be reached in time. ClickHouse may come later.
 */
export async function openApi(
  config: ApiConfig,
  stack: AsyncDisposableStack,
  log: Log,
  now = Date.now,
): Promise<OpenApi> {
  const redis = stack.use(await connectRedis(config));
  const clickhouse = stack.use(connectClickHouse(config));
  const control = new ControlStore(redis);
  const accounts = new Accounts(control, { now });
  const apiKeys = stack.use(new ApiKeys(control, { now }));
  const schema = new SchemaGate();
  const readiness = makeReadiness(redis, clickhouse, schema);
  const stream = await LogStream.open(redis);
  const flush = stack.use(new IngestFlush({ stream, now }));
  const hub = stack.use(new TailHub({ redis, log }));
  const streams = new StreamRegistry((listener) => apiKeys.onRevoked(listener));
  stack.defer(() => streams.close());
  const deps: ApiDeps = {
    accounts,
    apiKeys,
    organizations: new Organizations(control, { now }),
    projects: new Projects(control, { now }),
    ...(await openAlerts({ config, redis, clickhouse, control, stack, now })),
    clickhouse,
    logStore: new LogStore(clickhouse, { cursorSecret: await installationSecret(control), now }),
    stream,
    deadLetters: new DeadLetters(redis),
    flush,
    hub,
    streams,
    readiness,
    setup: new SetupGate(accounts),
    bodies: new BodyMemory(),
    config,
    log,
    now,
  };
  return {
    app: createApp(deps),
    deps,
    waitForSchema: async (signal) => schema.wait(async () => checkSchema(clickhouse), signal, log),
  };
}

type AlertDeps = Pick<
  ApiDeps,
  'alertRules' | 'alertHistory' | 'alertQueries' | 'ruleStates' | 'notifications'
>;

type Opened = {
  config: ApiConfig;
  redis: RedisStore;
  clickhouse: ClickHouseStore;
  control: ControlStore;
  stack: AsyncDisposableStack;
  now: () => number;
};

/** What the routes of alerts need; the work itself is done by the alert worker. */
async function openAlerts({ config, redis, clickhouse, control, stack, now }: Opened): Promise<AlertDeps> {
  return {
    alertRules: new AlertRules(control, {
      now,
      stream: new RuleStream(redis),
      shards: config.SHARDS,
      sealer: SecretSealer.parse(config.SECRET_KEYS),
    }),
    alertHistory: new AlertHistory(clickhouse),
    alertQueries: new AlertQueries(clickhouse),
    ruleStates: async (projectId, ruleIds) => readRuleStates(redis, projectId, ruleIds),
    notifications: stack.use(await NotificationQueue.open(config)),
  };
}

function makeReadiness(redis: RedisStore, clickhouse: ClickHouseStore, schema: SchemaGate): Readiness {
  return new Readiness({
    redis: async () => ((await isAdmitting(redis)) ? 'ok' : 'unavailable'),
    clickhouse: async () => {
      if (!(await clickhouse.ping())) return 'unavailable';
      return schema.hasPassed ? 'ok' : 'schema';
    },
  });
}
