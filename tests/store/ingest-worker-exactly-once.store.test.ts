import { afterAll, beforeAll, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { makeBlock, numbered, WorkerRig } from './ingest-worker-fixture.ts';

const DAYS = 4;

let rig: WorkerRig;
beforeAll(async () => {
  rig = await WorkerRig.start({ AUDIT_AFTER_MS: '1000' });
});
afterAll(async () => {
  await rig[Symbol.asyncDispose]();
});

/** All `rows` stored once, and rolled up once. */
const exactly = (rows: number): unknown => ({ rows, distinct: rows, rolledUp: rows });

it('F27: a plan whose token the server forgot is not stored twice by the next owner', async () => {
  const projectId = await rig.createProject();
  await rig.send(makeBlock([{ projectId, messages: numbered(500) }]));
  await rig.runUntilKilled('W4.after:kill');
  expect(await rig.count(projectId)).toEqual(exactly(500));
  await rig.forgetTokens();
  await using _next = rig.startWorker();
  await rig.settle();
  expect(await rig.count(projectId)).toEqual(exactly(500));
});

it('F25: a plan of which one partition is missing gets those rows only, whatever tokens are known', async () => {
  const projectId = await rig.createProject();
  await rig.send(makeBlock([{ projectId, messages: numbered(400) }], DAYS));
  await rig.runUntilKilled('W4.after:kill');
  expect(await rig.count(projectId)).toEqual(exactly(400));
  await rig.losePartition(projectId, ['logs', 'logs_hourly']);
  await rig.forgetTokens();
  expect(await rig.count(projectId)).toEqual(exactly(300));
  await using _next = rig.startWorker();
  await rig.settle();
  expect(await rig.count(projectId)).toEqual(exactly(400));
});

it('F24: rows that are gone although the server knows their token are stored under the next one', async () => {
  const projectId = await rig.createProject();
  await rig.send(makeBlock([{ projectId, messages: numbered(100) }]));
  await rig.runUntilKilled('W4.after:kill');
  await rig.clickhouse.command(
    `ALTER TABLE logs DELETE WHERE project_id = {project:UUID} AND message != 'message 0' SETTINGS mutations_sync = 2`,
    { project: projectId },
  );
  // A part without any row would be dropped, and its token with it.
  expect(await rig.count(projectId)).toMatchObject({ rows: 1 });
  await using next = rig.startWorker();
  await rig.settle();
  expect(await rig.count(projectId)).toMatchObject({ rows: 100, distinct: 100 });
  expect(next.output()).toContain('repairing a plan');
});

it('F25: a roll-up that the server did not get to is healed by the audit', async () => {
  const projectId = await rig.createProject();
  await rig.send(makeBlock([{ projectId, messages: numbered(400) }], DAYS));
  await rig.runUntilKilled('W4.after:kill');
  await rig.losePartition(projectId, ['logs_hourly']);
  await using _next = rig.startWorker();
  await rig.settle();
  await waitFor('the roll-up healed', async () => (await rig.count(projectId)).rolledUp >= 400);
  expect(await rig.count(projectId)).toEqual(exactly(400));
});

it('F23: rows that a server lost after it said 200 are stored again by the audit', async () => {
  const projectId = await rig.createProject();
  await using worker = rig.startWorker({ AUDIT_AFTER_MS: '4000' });
  await rig.send(makeBlock([{ projectId, messages: numbered(100, 'before') }]));
  await rig.settle();
  await rig.send(makeBlock([{ projectId, messages: numbered(400) }], DAYS));
  await rig.settle();
  await rig.losePartition(projectId, ['logs', 'logs_hourly']);
  expect(await rig.count(projectId)).toEqual(exactly(400));
  await waitFor('the repair', async () => (await rig.count(projectId)).rows >= 500);
  await waitFor('the roll-up', async () => (await rig.count(projectId)).rolledUp >= 500);
  expect(await rig.count(projectId)).toEqual(exactly(500));
  expect(worker.output()).toContain('stored entries were missing and are stored again');
});
