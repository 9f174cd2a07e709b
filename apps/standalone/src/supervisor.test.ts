import { once } from 'node:events';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { DataDir } from './data-dir.ts';
import { Supervisor } from './supervisor.ts';
import type { ChildSpec } from './supervisor.ts';

let path = '';
let dataDir: DataDir;
let supervisor: Supervisor;
let said: string[] = [];
let refused: string[] = [];

beforeEach(async () => {
  path = await mkdtemp(join(tmpdir(), 'logpond-supervisor-'));
  dataDir = await DataDir.open(path);
  said = [];
  refused = [];
  supervisor = new Supervisor({
    dataDir,
    say: (line) => said.push(line),
    onRefused: (name, message) => refused.push(`${name}: ${message}`),
  });
});

afterEach(async () => {
  await supervisor.stop(['child']);
  supervisor[Symbol.dispose]();
  dataDir[Symbol.dispose]();
  await rm(path, { recursive: true, force: true });
});

/** A tiny process; its script ends in `mark`, by which it is known. */
function specOf(script: string, stopMsMax = 5_000): ChildSpec {
  const mark = `/* ${path} */`;
  const args = ['-e', `${script} ${mark}`];
  return { name: 'child', command: process.execPath, args, env: { MARK: 'set' }, marks: [mark], stopMsMax };
}

const STAYS = 'setInterval(() => {}, 1000);';

async function readLog(): Promise<string> {
  return readFile(join(path, 'logs', 'child.log'), 'utf8');
}

async function recordedPid(): Promise<number> {
  const children = JSON.parse(await readFile(join(path, 'children.json'), 'utf8')) as Record<
    string,
    { pid: number }
  >;
  const pid = children['child']?.pid;
  if (pid === undefined) throw new Error('no child is recorded');
  return pid;
}

describe('Supervisor', () => {
  it('a killed child is back within 2 s, with its environment and its output in its log', async () => {
    supervisor.start(specOf(`console.log('up', process.env.MARK); console.error('err'); ${STAYS}`));
    await vi.waitFor(async () => expect(await readLog()).toContain('up set\nerr'), { timeout: 5_000 });
    const pid = await recordedPid();
    const killedAt = Date.now();
    process.kill(pid, 'SIGKILL');
    await vi.waitFor(async () => expect((await readLog()).match(/up set/g)).toHaveLength(2), {
      timeout: 2_000,
    });
    expect(Date.now() - killedAt).toBeLessThan(2_000);
    expect(await recordedPid()).not.toBe(pid);
    expect(said).toEqual(['child ended (SIGKILL), starting it again']);
    expect((await stat(join(path, 'logs', 'child.log'))).mode & 0o777).toBe(0o600);
  });

  it('one that keeps dying is started with growing pauses, and the log is named', async () => {
    supervisor.start(specOf('process.exit(3);'));
    await vi.waitFor(() => expect(said).toHaveLength(4), { timeout: 5_000 });
    expect(said[0]).toBe('child ended (exit code 3), starting it again');
    expect(said[3]).toBe(
      `child ended (exit code 3), 4 times in a row; next try in 0.8 s; see ${join(path, 'logs', 'child.log')}`,
    );
  });

  it('one that refuses its configuration (exit code 78) is not started again, and its message is handed on', async () => {
    supervisor.start(specOf("console.error('PORT: expected a number'); process.exit(78);"));
    await vi.waitFor(() => expect(refused).toEqual(['child: PORT: expected a number']), { timeout: 5_000 });
    expect(said).toEqual([]);
    expect(supervisor.isRunning('child')).toBe(false);
  });

  it('stop ends a child with SIGTERM and does not start it again', async () => {
    supervisor.start(
      specOf(
        `process.on('SIGTERM', () => { console.log('bye'); process.exit(0); }); console.log('up'); ${STAYS}`,
      ),
    );
    await vi.waitFor(async () => expect(await readLog()).toContain('up'), { timeout: 5_000 });
    await supervisor.stop(['child', 'unknown']);
    expect(await readLog()).toContain('bye');
    expect(supervisor.isRunning('child')).toBe(false);
    expect(said).toEqual([]);
  });

  it('a child that does not stop in its time is killed', async () => {
    supervisor.start(specOf(`process.on('SIGTERM', () => {}); console.log('up'); ${STAYS}`, 100));
    await vi.waitFor(async () => expect(await readLog()).toContain('up'), { timeout: 5_000 });
    await supervisor.stop(['child']);
    expect(said).toEqual(['child did not stop within 0.1 s and was killed']);
  });

  it('a program that does not exist is said, not thrown', async () => {
    supervisor.start({ ...specOf(''), command: '/does/not/exist', args: [] });
    await vi.waitFor(() => expect(said[0]).toMatch(/^child ended \(.*\), starting it again$/), {
      timeout: 5_000,
    });
  });
});

describe('DataDir', () => {
  it('a second launcher on one directory is refused with the process that holds it', async () => {
    const other = await mkdtemp(join(tmpdir(), 'logpond-held-'));
    const holder = spawn(process.execPath, ['-e', `${STAYS} // standalone/src/main.ts`], { stdio: 'ignore' });
    await once(holder, 'spawn');
    await writeFile(join(other, 'launcher.pid'), String(holder.pid));
    await expect(DataDir.open(other)).rejects.toThrow(`runs on ${other} already, as process ${holder.pid}`);
    holder.kill('SIGKILL');
    await once(holder, 'exit');
    (await DataDir.open(other))[Symbol.dispose]();
    await rm(other, { recursive: true });
  });

  it('a lock whose id now belongs to another program is taken over', async () => {
    const other = await mkdtemp(join(tmpdir(), 'logpond-stale-'));
    await writeFile(join(other, 'launcher.pid'), String(process.ppid));
    using taken = await DataDir.open(other);
    expect(await readFile(join(other, 'launcher.pid'), 'utf8')).toBe(String(process.pid));
    taken[Symbol.dispose]();
    await rm(other, { recursive: true });
  });

  it('what a killed launcher left running is ended, a stranger with the same id is not', async () => {
    const other = await mkdtemp(join(tmpdir(), 'logpond-orphan-'));
    const orphan = spawn(process.execPath, ['-e', `${STAYS} // ${other}`], { stdio: 'ignore' });
    const stranger = spawn(process.execPath, ['-e', `${STAYS} // something else`], { stdio: 'ignore' });
    await Promise.all([once(orphan, 'spawn'), once(stranger, 'spawn')]);
    const children = { a: { pid: orphan.pid, marks: [other] }, b: { pid: stranger.pid, marks: [other] } };
    await writeFile(join(other, 'children.json'), JSON.stringify(children));
    const ended = once(orphan, 'exit');
    using taken = await DataDir.open(other);
    expect(await ended).toEqual([null, 'SIGTERM']);
    expect(stranger.exitCode ?? stranger.signalCode).toBeNull();
    stranger.kill('SIGKILL');
    taken[Symbol.dispose]();
    await rm(other, { recursive: true });
  });
});
