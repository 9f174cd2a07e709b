import { ChaosProxy } from './chaos-proxy.ts';

/** Who stands between whom; the alert worker shares the ingest worker's. */
export type RigProxies = {
  workerToRedis: ChaosProxy;
  workerToClickHouse: ChaosProxy;
  apiToRedis: ChaosProxy;
  apiToClickHouse: ChaosProxy;
};

/** Opens a proxy for each of them. */
export async function openProxies(ports: { redisPort: number; clickhousePort: number }): Promise<RigProxies> {
  return {
    workerToRedis: await ChaosProxy.open(ports.redisPort),
    workerToClickHouse: await ChaosProxy.open(ports.clickhousePort),
    apiToRedis: await ChaosProxy.open(ports.redisPort),
    apiToClickHouse: await ChaosProxy.open(ports.clickhousePort),
  };
}
