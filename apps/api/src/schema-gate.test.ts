import { StoreError } from '@logpond/db/store-error';
import { createLog } from '@logpond/runtime/log';
import { describe, expect, it } from 'vitest';
import { SchemaGate } from './schema-gate.ts';

const log = createLog('test', 'silent');

describe('SchemaGate', () => {
  it('waits through an unreachable ClickHouse and an old schema, and passes when the schema is there', async () => {
    const gate = new SchemaGate();
    const answers = [new StoreError('clickhouse', 'unavailable', 'refused'), new Error('too old'), undefined];
    const check = async (): Promise<void> => {
      expect(gate.hasPassed).toBe(false);
      const answer = answers.shift();
      if (answer !== undefined) throw answer;
    };
    await gate.wait(check, new AbortController().signal, log);
    expect([gate.hasPassed, answers.length]).toEqual([true, 0]);
  });

  it('ends its waiting at shutdown without passing', async () => {
    const gate = new SchemaGate();
    const stop = new AbortController();
    const waiting = gate.wait(() => Promise.reject(new Error('too old')), stop.signal, log);
    stop.abort();
    await waiting;
    expect(gate.hasPassed).toBe(false);
  });
});
