import { describe, expect, it } from 'vitest';
import { Readiness } from './readiness.ts';
import type { CheckOutcome } from './readiness.ts';

describe('Readiness', () => {
  it('is ok only when both stores are, and never while stopping', async () => {
    let clickhouse: CheckOutcome = 'schema';
    const readiness = new Readiness({ redis: async () => 'ok', clickhouse: async () => clickhouse });
    expect(await readiness.report()).toEqual({
      status: 'unavailable',
      checks: { redis: 'ok', clickhouse: 'schema' },
    });
    clickhouse = 'ok';
    expect((await readiness.report()).status).toBe('ok');
    readiness.stop();
    expect((await readiness.report()).status).toBe('stopping');
  });

  it('counts a check that throws as unavailable', async () => {
    const readiness = new Readiness({
      redis: () => Promise.reject(new Error('no')),
      clickhouse: async () => 'ok',
    });
    expect((await readiness.report()).checks.redis).toBe('unavailable');
  });

  it('gives a hanging check 1 s and never starts a second one meanwhile', async () => {
    const hanging = Promise.withResolvers<CheckOutcome>();
    let started = 0;
    const readiness = new Readiness({
      redis: async () => {
        started += 1;
        return hanging.promise;
      },
      clickhouse: async () => 'ok',
    });
    const reports = await Promise.all([readiness.report(), readiness.report(), readiness.report()]);
    expect(reports.map(({ checks }) => checks.redis)).toEqual(['timeout', 'timeout', 'timeout']);
    expect(started).toBe(1);
    hanging.resolve('ok');
    await hanging.promise;
    expect((await readiness.report()).checks.redis).toBe('ok');
  });
});
