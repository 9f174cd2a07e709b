import { maskConfig, readConfig } from '@logpond/runtime/env';
import { armFailpoints } from '@logpond/runtime/failpoint';
import { startMetricsServer } from '@logpond/runtime/metrics';
import { runProcess } from '@logpond/runtime/run';
import { configSchema } from './config.ts';
import { Listener } from './listener.ts';
import { openApi } from './open.ts';

await runProcess('api', async ({ signal, stack, log, fail }) => {
  const config = readConfig(configSchema);
  log.level = config.LOG_LEVEL;
  armFailpoints(config.FAILPOINT);
  log.info({ config: maskConfig(config) }, 'starting');
  stack.use(await startMetricsServer(config.METRICS_PORT, config.METRICS_HOST));

  const { app, deps, waitForSchema } = await openApi(config, stack, log);
  await deps.setup.announce(config.SETUP_TOKEN_FILE, (text) => process.stderr.write(text));
  stack.defer(async () => deps.setup.removeToken());
  waitForSchema(signal).catch(fail);

  // Closed in reverse: not ready, then no new connections while streams end and requests finish.
  const listener = await Listener.open(app, config.PORT, config.HOST);
  stack.defer(async () => {
    deps.readiness.stop();
    deps.streams.close();
    await listener.close();
  });
  log.info({ host: config.HOST, port: listener.port, basePath: config.BASE_PATH }, 'listening');
});
