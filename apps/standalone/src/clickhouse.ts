import { readConfig } from '@logpond/runtime/env';
import { runProcess } from '@logpond/runtime/run';
import { resolve } from 'node:path';
import { z } from 'zod';
import { startClickHouse } from './clickhouse-front.ts';

/** The embedded engine as a process of its own: ClickHouse's HTTP interface on loopback. */
const configSchema = z.object({
  CLICKHOUSE_DATA_DIR: z.string().min(1),
  /** 0 takes a free port; the address is the first line of standard output, as {"url": …}. */
  CLICKHOUSE_PORT: z.coerce.number().int().min(0).max(65_535).default(0),
  CLICKHOUSE_USER: z.string().min(1).default('default'),
  CLICKHOUSE_PASSWORD: z.string().default(''),
  /** libuv's own: must be in the environment before the process starts. */
  UV_THREADPOOL_SIZE: z.coerce.number().int().min(1).max(1024).default(4),
});

await runProcess('clickhouse', async ({ stack }) => {
  const config = readConfig(configSchema);
  const server = await startClickHouse({
    dataDir: resolve(config.CLICKHOUSE_DATA_DIR),
    port: config.CLICKHOUSE_PORT,
    user: config.CLICKHOUSE_USER,
    password: config.CLICKHOUSE_PASSWORD,
    threads: config.UV_THREADPOOL_SIZE,
  });
  stack.defer(server.close);
  process.stdout.write(`${JSON.stringify({ url: server.url })}\n`);
});
