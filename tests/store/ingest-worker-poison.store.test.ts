import { DeadLetters } from '@logpond/db/dead-letters';
import type { DeadLetter } from '@logpond/db/dead-letters';
import type { EncodedBlock } from '@logpond/log-block/encode';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { makeBlock, numbered, WorkerRig } from './ingest-worker-fixture.ts';

let rig: WorkerRig;
let letters: DeadLetters;
beforeAll(async () => {
  rig = await WorkerRig.start();
  letters = new DeadLetters(rig.redis);
});
afterAll(async () => {
  await rig[Symbol.asyncDispose]();
});
/** What an operator may put on the table: rows that break it fail every time. */
beforeEach(async () => {
  await rig.clickhouse.command(
    `ALTER TABLE logs ADD CONSTRAINT IF NOT EXISTS harmless CHECK NOT startsWith(message, 'poison')`,
  );
});

async function listLetters(projectId: string): Promise<DeadLetter[]> {
  const { deadLetters } = await letters.list(projectId, { limit: 1_000 });
  return deadLetters;
}

/** The entries of a project's letters. */
async function readLetters(projectId: string): Promise<{ message: string }[]> {
  const entries: { message: string }[] = [];
  for (const { id } of await listLetters(projectId)) {
    const content = await letters.read(projectId, id);
    const lines = content?.payload.toString().trimEnd().split('\n') ?? [];
    entries.push(...lines.map((line) => JSON.parse(line) as { message: string }));
  }
  return entries;
}

/** `count` messages, of which those at `places` are poison. */
function poisoned(count: number, places: readonly number[]): string[] {
  return numbered(count).map((message, index) => (places.includes(index) ? `poison ${index}` : message));
}

it('F31: a row that the store refuses goes to the dead letters, its neighbours are stored, the shard moves on', async () => {
  const [projectId, other] = [await rig.createProject(), await rig.createProject()];
  const messages = poisoned(300, [0, 17, 299]);
  const firstOffset = await rig.send(
    makeBlock([
      { projectId, messages },
      { projectId: other, messages: numbered(50) },
    ]),
  );
  await using worker = rig.startWorker();
  await rig.settle();
  const stored = messages.filter((message) => !message.startsWith('poison'));
  expect(await rig.messages(projectId)).toEqual(stored);
  expect(await rig.count(projectId)).toEqual({ rows: 297, distinct: 297, rolledUp: 297 });
  expect(await rig.count(other)).toMatchObject({ rows: 50, distinct: 50 });

  const buried = (await listLetters(projectId)).toSorted((a, b) => a.id.localeCompare(b.id));
  expect(buried.map(({ id }) => id)).toEqual(
    [0, 17, 299].map((row) => `1-0-${firstOffset + row}-1`).toSorted(),
  );
  expect(buried[0]).toMatchObject({ reason: 'refused_by_store', entries: 1, projectId });
  expect(buried[0]?.detail).toContain('VIOLATED_CONSTRAINT');
  expect(await listLetters(other)).toEqual([]);
  const [entry] = await readLetters(projectId);
  expect(entry).toMatchObject({ service: 'web', level: 'info', message: 'poison 299', metadata: { n: 1 } });
  expect(Object.keys(entry ?? {}).toSorted()).toEqual(['level', 'message', 'metadata', 'service', 'time']);

  await rig.send(makeBlock([{ projectId, messages: ['behind'] }]));
  await rig.settle();
  expect(await rig.messages(projectId)).toContain('behind');
  // Its own log never holds what customers log.
  expect(worker.output()).not.toContain('poison');
});

it('F31: a worker killed amid a refused plan leaves it so that the next ends the same', async () => {
  const projectId = await rig.createProject();
  await rig.send(makeBlock([{ projectId, messages: poisoned(200, [3, 150]) }]));
  await rig.runUntilKilled('W4.after:kill:2');
  const { rows } = await rig.count(projectId);
  expect(rows).toBeGreaterThan(0);
  expect(rows).toBeLessThan(198);
  await rig.runUntilKilled('W6.before:kill');
  await using _next = rig.startWorker();
  await rig.settle();
  expect(await rig.count(projectId)).toEqual({ rows: 198, distinct: 198, rolledUp: 198 });
  const messages = (await readLetters(projectId)).map(({ message }) => message);
  expect(messages.toSorted()).toEqual(['poison 150', 'poison 3']);
});

it('F31: hundreds of refused rows are buried in letters of many entries, and nothing beside them is lost', async () => {
  const projectId = await rig.createProject();
  const messages = numbered(500, 'poison');
  await rig.send(makeBlock([{ projectId, messages: [...numbered(500), ...messages] }]));
  await using _worker = rig.startWorker();
  await rig.settle(60_000);
  expect((await rig.messages(projectId)).length).toBeGreaterThan(400);
  const kept = (await readLetters(projectId)).map(({ message }) => message);
  const stored = await rig.messages(projectId);
  expect([...stored, ...kept].toSorted()).toEqual([...numbered(500), ...messages].toSorted());
  expect((await listLetters(projectId)).length).toBeLessThan(100);
});

it('F33: a block with damaged contents or header is buried, its neighbours are stored', async () => {
  const projectId = await rig.createProject();
  const offsets: number[] = [];
  for (const prefix of ['first', 'second', 'third', 'fourth']) {
    offsets.push(await rig.send(makeBlock([{ projectId, messages: numbered(10, prefix) }])));
  }
  await damage(offsets[1] ?? 0, (block) => block.fill(0xff, block.length - 20));
  await damage(offsets[2] ?? 0, (block) => block.fill(0, 0, 16));
  await using worker = rig.startWorker();
  await rig.settle();
  expect(await rig.messages(projectId)).toEqual([...numbered(10, 'first'), ...numbered(10, 'fourth')]);
  expect(await listLetters(projectId)).toMatchObject([
    { id: `1-0-${offsets[1]}-10`, reason: 'damaged_block', entries: 10, bytes: 0 },
  ]);
  const { letters: unowned } = rig.keys.dead('-');
  const texts = await rig.redis.client.hgetall(unowned);
  // The bytes of both, and the entries of the one whose project cannot be told.
  const entriesOf = Object.entries(texts).map(([id, text]) => [id, (JSON.parse(text) as DeadLetter).entries]);
  expect(Object.fromEntries(entriesOf)).toEqual({
    [`1-0-${offsets[1]}-10`]: 0,
    [`1-0-${offsets[2]}-10`]: 10,
  });
  expect(worker.child.exitCode).toBeNull();
});

/** A plan of two blocks, the second of which ends whoever decodes it, and the deaths that come before it is tried. */
async function killReaders(first: EncodedBlock, killer: EncodedBlock): Promise<string> {
  await rig.send(first);
  const offset = await rig.send(killer);
  await rig.runUntilKilled('W4.after:kill');
  const failpoint = `W2.decode@${offset}:kill`;
  for (let death = 2; death <= 3; death += 1) await rig.runUntilKilled(failpoint);
  return failpoint;
}

it('F32: a block that ended three readers is buried unread by the fourth, its neighbours are stored', async () => {
  const [projectId, other] = [await rig.createProject(), await rig.createProject()];
  await rig.send(makeBlock([{ projectId, messages: numbered(10, 'before') }]));
  const killer = await rig.send(
    makeBlock([
      { projectId, messages: numbered(10, 'killer') },
      { projectId: other, messages: numbered(4, 'killer') },
    ]),
  );
  await rig.send(makeBlock([{ projectId, messages: numbered(10, 'behind') }]));
  const failpoint = `W2.decode@${killer}:kill`;
  for (let death = 1; death <= 3; death += 1) await rig.runUntilKilled(failpoint);
  await using _fourth = rig.startWorker({ FAILPOINT: failpoint });
  await rig.settle();
  expect(await rig.messages(projectId)).toEqual([...numbered(10, 'before'), ...numbered(10, 'behind')]);
  expect(await listLetters(projectId)).toMatchObject([
    { id: `1-0-${killer}-10`, reason: 'kills_reader', entries: 10, bytes: 0 },
  ]);
  expect(await listLetters(other)).toMatchObject([{ id: `1-0-${killer + 10}-4`, entries: 4, bytes: 0 }]);
  // The block itself, once.
  const { letters: unowned } = rig.keys.dead('-');
  const raw = JSON.parse((await rig.redis.client.hget(unowned, `1-0-${killer}-14`)) ?? '{}') as DeadLetter;
  expect(raw).toMatchObject({ reason: 'kills_reader', entries: 0 });
  expect(raw.bytes).toBeGreaterThan(100);
});

it('F32: a plan whose workers were ended by something else than its blocks is stored whole', async () => {
  const projectId = await rig.createProject();
  await rig.send(makeBlock([{ projectId, messages: numbered(10) }]));
  for (let death = 1; death <= 3; death += 1) await rig.runUntilKilled('W4.before:kill');
  await using last = rig.startWorker();
  await rig.settle();
  expect(last.output()).toContain('reading a plan with care');
  expect(await rig.messages(projectId)).toEqual(numbered(10));
  expect(await listLetters(projectId)).toEqual([]);
});

it('F32: entries of a block that is buried unread and stored already neither get a letter nor hide missing ones', async () => {
  const [lost, stored] = [await rig.createProject(), await rig.createProject()];
  const failpoint = await killReaders(
    makeBlock([{ projectId: lost, messages: numbered(6) }], 2),
    makeBlock([{ projectId: stored, messages: numbered(10) }]),
  );
  // As if the engine had been killed between two partitions of that insert.
  await rig.losePartition(lost, ['logs', 'logs_hourly']);
  expect(await rig.count(lost)).toMatchObject({ rows: 3 });
  await using _fourth = rig.startWorker({ FAILPOINT: failpoint });
  await rig.settle();
  expect((await rig.messages(lost)).toSorted()).toEqual(numbered(6));
  expect(await rig.count(stored)).toMatchObject({ rows: 10, distinct: 10 });
  expect(await listLetters(stored)).toEqual([]);
});

it('F31: a letter that is replayed or deleted before its plan is committed does not come back', async () => {
  const projectId = await rig.createProject();
  await rig.send(makeBlock([{ projectId, messages: poisoned(20, [3, 15]) }]));
  await rig.runUntilKilled('W6.before:kill');
  const [replayed, deleted] = (await listLetters(projectId)).map(({ id }) => id);
  await rig.clickhouse.command('ALTER TABLE logs DROP CONSTRAINT harmless');
  await rig.send(makeBlock([{ projectId, messages: ['replayed'] }]));
  for (const id of [replayed, deleted]) expect(await letters.remove(projectId, id ?? '')).toBe(true);
  await using _next = rig.startWorker();
  await rig.settle();
  const good = numbered(20).filter((_, index) => index !== 3 && index !== 15);
  expect(await rig.messages(projectId)).toEqual([...good, 'replayed']);
  expect(await listLetters(projectId)).toEqual([]);
  const fields = await rig.redis.client.hkeys(rig.keys.state);
  expect(fields.filter((field) => field.includes('buried'))).toEqual([]);
});

/** Changes the bytes of a block in the stream: the stream is written anew, as entries cannot be replaced. */
async function damage(offset: number, change: (block: Buffer) => void): Promise<void> {
  const { client } = rig.redis;
  const entries = await client.xrangeBuffer(rig.keys.log, '-', '+');
  const copy = `${rig.keys.log}:copy`;
  for (const [id, fields] of entries) {
    const block = Buffer.from(fields[1] ?? Buffer.alloc(0));
    if (id.toString() === `${offset}-0`) change(block);
    await client.xadd(copy, id.toString(), 'b', block, 'd', fields[3] ?? Buffer.alloc(0));
  }
  await client.rename(copy, rig.keys.log);
}
