import { randomUUID } from 'node:crypto';
import { addToRollUp, compareRollUp } from '@logpond/db/roll-up';
import type { RollUpDifference } from '@logpond/db/roll-up';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { entryAt, HOUR_NS, NOW_NS, startEngine, storeEntries } from './log-store-fixture.ts';
import type { TestEngine } from './log-store-fixture.ts';

const HOUR_S = 3_600;
const NOON_S = Number(NOW_NS / 1_000_000_000n);

let engine: TestEngine;
beforeAll(async () => {
  engine = await startEngine();
});
afterAll(async () => {
  await engine.stop();
});

/** 30 entries at noon and 12 in the hour before. */
async function storeTwoHours(projectId: string): Promise<void> {
  const entries = Array.from({ length: 42 }, (_, index) =>
    entryAt(NOW_NS - (index < 30 ? 0n : HOUR_NS), { level: index < 30 ? 2 : 4 }),
  );
  await storeEntries(engine.logs, projectId, entries);
}

async function compare(projectId: string, hours = [NOON_S, NOON_S - HOUR_S]): Promise<RollUpDifference[]> {
  const differences = await compareRollUp(engine.store, { projectIds: [projectId], hours });
  return differences.toSorted((a, b) => a.hour - b.hour);
}

it('the roll-up of an undisturbed insert says what the entries do', async () => {
  const projectId = randomUUID();
  await storeTwoHours(projectId);
  expect(await compare(projectId)).toEqual([]);
});

it('what the roll-up lacks is found in its hours only, and added once under one token', async () => {
  const projectId = randomUUID();
  await storeTwoHours(projectId);
  await engine.store.command(
    'ALTER TABLE logs_hourly DELETE WHERE project_id = {project:UUID} SETTINGS mutations_sync = 2',
    { project: projectId },
  );
  const group = { projectId, retentionDays: 30, service: 'api', counted: 0 };
  const expected = [
    { ...group, hour: NOON_S - HOUR_S, level: 'error', stored: 12 },
    { ...group, hour: NOON_S, level: 'info', stored: 30 },
  ];
  const found = await compare(projectId);
  expect(found).toEqual(expected);
  expect(await compare(projectId, [NOON_S])).toEqual(expected.slice(1));
  for (let times = 0; times < 2; times += 1) await addToRollUp(engine.store, found, 'one token');
  expect(await compare(projectId)).toEqual([]);
});

it('what the roll-up counts too much is told and stays', async () => {
  const projectId = randomUUID();
  await storeTwoHours(projectId);
  const surplus = { projectId, retentionDays: 30, hour: NOON_S, service: 'api', level: 'info' };
  await addToRollUp(engine.store, [{ ...surplus, stored: 5, counted: 0 }], randomUUID());
  const found = await compare(projectId);
  expect(found).toEqual([{ ...surplus, stored: 30, counted: 35 }]);
  await addToRollUp(engine.store, found, randomUUID());
  expect(await compare(projectId)).toEqual(found);
});
