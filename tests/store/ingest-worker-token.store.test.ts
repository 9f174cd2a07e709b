import { expect, it } from 'vitest';
import { makeBlock, numbered, WorkerRig } from './ingest-worker-fixture.ts';

// Without a token of ours the server compares the rows themselves, and goes on refusing rows that it has lost.
it('F25: a plan whose rows the server lost, and still thinks to have, is stored again under another token', async () => {
  await using rig = await WorkerRig.start();
  const projectId = await rig.createProject();
  await rig.send(makeBlock([{ projectId, messages: numbered(400) }]));
  await rig.runUntilKilled('W4.after:kill');
  const lose = 'DELETE WHERE project_id = {project:UUID} SETTINGS mutations_sync = 2';
  for (const table of ['logs', 'logs_hourly'])
    await rig.clickhouse.command(`ALTER TABLE ${table} ${lose}`, { project: projectId });
  expect(await rig.count(projectId)).toEqual({ rows: 0, distinct: 0, rolledUp: 0 });
  await using _next = rig.startWorker();
  await rig.settle();
  expect(await rig.count(projectId)).toEqual({ rows: 400, distinct: 400, rolledUp: 400 });
});
