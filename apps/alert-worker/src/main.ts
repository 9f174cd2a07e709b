import { AlertHistory } from '@logpond/db/alert-history';
import { AlertQueries } from '@logpond/db/alert-queries';
import { AlertRules } from '@logpond/db/alert-rules';
import { connectClickHouse } from '@logpond/db/clickhouse';
import { connectRedis } from '@logpond/db/connect';
import { ControlStore } from '@logpond/db/control-store';
import { NotificationQueue } from '@logpond/db/notification-queue';
import { Projects } from '@logpond/db/projects';
import { RuleStream } from '@logpond/db/rule-stream';
import { ShardLeases } from '@logpond/db/shard-leases';
import { StoreError } from '@logpond/db/store-error';
import { maskConfig, readConfig } from '@logpond/runtime/env';
import { armFailpoints } from '@logpond/runtime/failpoint';
import { startMetricsServer } from '@logpond/runtime/metrics';
import { yieldToRequests } from '@logpond/runtime/priority';
import { runProcess } from '@logpond/runtime/run';
import { configSchema } from './config.ts';
import { startNotifier } from './notifier.ts';
import { ownShard } from './shard-owner.ts';
import type { AlertDeps } from './shard.ts';

await runProcess('alert-worker', async ({ stack, log, fail }) => {
  const config = readConfig(configSchema);
  armFailpoints(config.FAILPOINT);
  log.level = config.LOG_LEVEL;
  log.info({ config: maskConfig(config) }, 'starting');
  yieldToRequests();
  stack.use(await startMetricsServer(config.METRICS_PORT, config.METRICS_HOST));
  const redis = stack.use(await connectRedis(config));
  const clickhouse = stack.use(connectClickHouse(config));
  const control = new ControlStore(redis);
  const ruleStream = new RuleStream(redis);
  const rules = new AlertRules(control, { stream: ruleStream, shards: redis.shards });
  const queue = stack.use(await NotificationQueue.open(config));
  const projects = new Projects(control);
  const queries = new AlertQueries(clickhouse);
  const now = Date.now;
  stack.use(await startNotifier({ config, queue, redis, rules, projects, queries, log, now }));
  const deps: AlertDeps = {
    redis,
    queue,
    rules,
    ruleStream,
    history: new AlertHistory(clickhouse),
    log,
    now,
    elapsedMs: () => performance.now(),
    rulePollMs: config.RULE_POLL_MS,
  };
  const leases = stack.use(
    new ShardLeases({
      redis,
      consumer: 'alert',
      onError: (error) =>
        error instanceof StoreError ? log.warn({ err: error }, 'a lease could not be kept') : fail(error),
      work: async (ownership, lost) => ownShard(ownership, deps, lost),
    }),
  );
  leases.start();
});
