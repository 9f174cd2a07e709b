import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { Installation, PROCESS_NAMES } from './support/installation.ts';
import { readAllIds } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';

let installation: Installation;

beforeAll(async () => {
  installation = await Installation.start();
});
afterAll(async () => installation[Symbol.asyncDispose]());

describe('the whole product on one machine', () => {
  it('stopped by Ctrl-C under load: api, workers, ClickHouse, Redis, in this order; all acknowledged is there again', async () => {
    const { baseUrl, projectId, apiKey } = installation.credentials;
    const url = new URL(baseUrl).origin;
    const oracle = new Oracle({ run: 'ctrl-c', tenants: [{ projectId, apiKey, shard: 0 }], url });
    await using load = oracle.startLoad({
      concurrency: 4,
      rowsPerRequest: 20,
      isKeyed: false,
      ambiguousMax: 1,
    });
    await waitFor('entries to be acknowledged', () => oracle.acknowledgedRows > 2_000);
    const pids = PROCESS_NAMES.map((name) => installation.findProcess(name));
    expect(pids).not.toContain(undefined);

    expect(await installation.stop()).toBe(0);
    await load.stop();
    expect(installation.said.match(/stopping .*|stopped/g)).toEqual([
      'stopping api',
      'stopping ingest-worker and alert-worker',
      'stopping clickhouse',
      'stopping redis',
      'stopped',
    ]);
    expect(pids.filter((pid) => pid !== undefined && isAlive(pid))).toEqual([]);

    installation = await Installation.start(installation.dataDir);
    expect(installation.credentials.apiKey).toBe(apiKey);
    // What the workers had not stored when they were stopped is stored now.
    const ids = await waitFor('all that was acknowledged', async () => {
      const found = await readAllIds(new URL(installation.credentials.baseUrl).origin, apiKey);
      return found.length >= oracle.acknowledgedRows ? found : undefined;
    });
    expect(new Set(ids).size).toBe(ids.length);
    // A request may meet an idle connection just as it is closed; its sender cannot know what became of it.
    const inDoubt = oracle.ledger.filter(({ outcomes }) => outcomes.includes('ambiguous')).length * 20;
    expect(ids.length).toBeLessThanOrEqual(oracle.acknowledgedRows + inDoubt);
    expect(inDoubt).toBeLessThanOrEqual(4 * 20);
  });
});

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
