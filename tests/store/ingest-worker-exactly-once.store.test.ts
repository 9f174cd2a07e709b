import { randomUUID } from 'node:crypto';
import type { EncodedBlock } from '@logpond/log-block/encode';
import { encodeSeq } from '@logpond/log-block/entry-id';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { makeBlock, numbered, WorkerRig } from './ingest-worker-fixture.ts';

const DAYS = 4;
/** The system project of the only shard (apps/ingest-worker/src/canary-project.ts). */
const CANARY = '10900d00-0000-8000-8000-000000000000';

let rig: WorkerRig;
beforeAll(async () => {
  rig = await WorkerRig.start({ AUDIT_AFTER_MS: '1000' });
});
afterAll(async () => {
  await rig[Symbol.asyncDispose]();
});

/** Stores blocks by a worker that stops before it audits them: what is lost meanwhile is the next one's to find. */
async function storeUnaudited(...blocks: EncodedBlock[]): Promise<number[]> {
  await using worker = rig.startWorker({ AUDIT_AFTER_MS: '600000' });
  const offsets: number[] = [];
  for (const block of blocks) {
    offsets.push(await rig.send(block));
    await rig.settle();
  }
  expect(await worker.stop()).toBe(0);
  return offsets;
}

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
  await storeUnaudited(
    makeBlock([{ projectId, messages: numbered(100, 'before') }]),
    makeBlock([{ projectId, messages: numbered(400) }], DAYS),
  );
  await rig.losePartition(projectId, ['logs', 'logs_hourly']);
  expect(await rig.count(projectId)).toEqual(exactly(400));
  await using worker = rig.startWorker();
  await waitFor('the repair', async () => (await rig.count(projectId)).rows >= 500);
  await waitFor('the roll-up', async () => (await rig.count(projectId)).rolledUp >= 500);
  expect(await rig.count(projectId)).toEqual(exactly(500));
  expect(worker.output()).toContain('stored entries were missing and are stored again');
});

it('F23: a canary and a deleted project in a plan do not excuse the missing entries of others', async () => {
  const [projectId, deleted] = [await rig.createProject(), randomUUID()];
  const runs = [
    { projectId, messages: numbered(9) },
    // Of a class of one day, which the oldest entries of the other are past.
    { projectId: CANARY, messages: ['canary'] },
    { projectId: deleted, messages: ['deleted'] },
  ];
  await storeUnaudited(makeBlock(runs, 3));
  for (const lost of [projectId, deleted]) await rig.losePartition(lost, ['logs', 'logs_hourly']);
  await using worker = rig.startWorker();
  await waitFor('the repair', async () => (await rig.count(projectId)).rows >= 9);
  await waitFor('the end of the audit', () => worker.output().includes('"reason":"deleted"'));
  expect(await rig.count(projectId)).toMatchObject({ rows: 9, distinct: 9 });
  expect(await rig.count(deleted)).toMatchObject({ rows: 0 });
  expect(worker.output()).toContain('"missing":4,"reason":"repaired"');
});

it('F23: buried entries that are stored all the same do not stand for others that went missing', async () => {
  const projectId = await rig.createProject();
  await rig.clickhouse.command(
    `ALTER TABLE logs ADD CONSTRAINT harmless CHECK NOT startsWith(message, 'poison')`,
  );
  // Of three days in turn: the oldest loses a buried entry and two stored ones.
  const messages = [...numbered(3, 'poison'), ...numbered(6)];
  const [offset = 0] = await storeUnaudited(makeBlock([{ projectId, messages }], 3));
  await rig.clickhouse.command('ALTER TABLE logs DROP CONSTRAINT harmless');
  const insert = `INSERT INTO logs (project_id, retention_days, time, seq, shard, level, service, message)
    SELECT {project:UUID}, 14, max(time), {seq:UInt64}, 0, 'info', 'web', 'dead' FROM logs WHERE project_id = {project:UUID}`;
  for (const dead of [offset, offset + 1])
    await rig.clickhouse.command(insert, { project: projectId, seq: String(encodeSeq(1, dead)) });
  await rig.losePartition(projectId, ['logs', 'logs_hourly']);
  await using worker = rig.startWorker();
  await waitFor('the repair', () => worker.output().includes('are stored again'));
  expect(await rig.messages(projectId)).toEqual(['dead', 'dead', ...numbered(6)]);
});
