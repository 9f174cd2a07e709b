import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { renderAppSpec } from './children.ts';
import { CHECKOUT_DIR } from './config.ts';

let checkout = '';
let programs = '';

/** A checkout whose packages are there, and a PATH that holds only what a test puts there. */
beforeEach(async () => {
  checkout = await mkdtemp(join(tmpdir(), 'logpond-bootstrap-'));
  programs = join(checkout, 'programs');
  await mkdir(programs);
  await mkdir(join(checkout, 'scripts'));
  await copyFile(join(CHECKOUT_DIR, 'bootstrap.mjs'), join(checkout, 'bootstrap.mjs'));
  await writeFile(join(checkout, 'pnpm-lock.yaml'), 'lockfileVersion: 9\n');
  await writeFile(join(checkout, 'target.ts'), TARGET);
  await installPackages();
  await addProgram('redis-server', 'echo "Redis server v=7.0.15 sha=0"');
  // What the shell scripts below need.
  for (const name of ['sh', 'sleep', 'mkdir', 'ln']) await symlink(`/bin/${name}`, join(programs, name));
});

afterEach(() => rm(checkout, { recursive: true, force: true }));

const TARGET = `
console.log('ran', ...process.argv.slice(2), process.env.PATH.split(':')[0]);
if (process.argv[2] === 'exit') process.exit(Number(process.argv[3]));
if (process.argv[2] === 'wait') {
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => { console.log('got', name); process.exit(5); });
  setInterval(() => {}, 1000);
}
`;

async function installPackages(): Promise<void> {
  const bin = join(checkout, 'node_modules', '.bin');
  await mkdir(bin, { recursive: true });
  await symlink(process.execPath, join(bin, 'node'));
  const hash = createHash('sha256').update(await readFile(join(checkout, 'pnpm-lock.yaml')));
  const stamp = hash.update(`${process.platform}-${process.arch}`).digest('hex');
  await writeFile(join(checkout, 'node_modules', '.logpond-lock-hash'), stamp);
}

async function addProgram(name: string, script: string): Promise<void> {
  await writeFile(join(programs, name), `#!/bin/sh\n${script}\n`);
  await chmod(join(programs, name), 0o755);
}

function run(
  args: string[],
  env: Record<string, string> = {},
): { child: ReturnType<typeof spawn>; output: () => string; exited: Promise<unknown[]> } {
  const child = spawn(process.execPath, [join(checkout, 'bootstrap.mjs'), ...args], {
    env: { PATH: programs, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (text: Buffer) => (output += text.toString()));
  return { child, output: () => output, exited: once(child, 'close') };
}

describe('bootstrap.mjs', () => {
  it('runs the target with its arguments and the checkout’s programs first on PATH, and exits as it does', async () => {
    const { exited, output } = run(['target.ts', 'exit', '7']);
    expect(await exited).toEqual([7, null]);
    expect(output()).toBe(`ran exit 7 ${join(checkout, 'node_modules', '.bin')}\n`);
  });

  it('runs a process of ours with the same flags of Node as the launcher does, and nothing else', async () => {
    const [flags, own] = ['packages/runtime/src/node-flags.json', 'apps/api/src/main.ts'];
    for (const path of [flags, own]) await mkdir(join(checkout, dirname(path)), { recursive: true });
    await copyFile(join(CHECKOUT_DIR, flags), join(checkout, flags));
    for (const path of [own, 'target.ts'])
      await writeFile(join(checkout, path), 'console.log(...process.execArgv);');
    const launched = renderAppSpec('api', {}).args;
    expect(launched.slice(0, -1)).toEqual(['--initial-old-space-size=64']);
    const ran = run([own]);
    expect(await ran.exited).toEqual([0, null]);
    expect(ran.output()).toBe(`${launched.slice(0, -1).join(' ')}\n`);
    const other = run(['target.ts']);
    expect(await other.exited).toEqual([0, null]);
    expect(other.output()).toBe('\n');
  });

  it.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)('passes %s on and waits for the target', async (name) => {
    const { child, exited, output } = run(['target.ts', 'wait']);
    await vi.waitFor(() => expect(output()).toContain('ran wait'), { timeout: 5_000 });
    child.kill(name);
    expect(await exited).toEqual([5, null]);
    expect(output()).toContain(`got ${name}`);
  });

  it('installs when the lockfile has changed, once for two starts at the same time', async () => {
    const calls = join(checkout, 'calls');
    await addProgram('npx', `echo "$@" >> ${calls}; echo progress; sleep 0.5`);
    await writeFile(join(checkout, 'pnpm-lock.yaml'), 'changed\n');
    const both = [run(['target.ts', 'one']), run(['target.ts', 'two'])];
    for (const { exited } of both) expect(await exited).toEqual([0, null]);
    expect(await readFile(calls, 'utf8')).toMatch(/^--yes pnpm@[\d.]+ install --frozen-lockfile [^\n]*\n$/);
    const output = both.map((one) => one.output()).join('');
    expect(output).toContain('progress');
    expect(output).toContain('another start is installing');
    expect(output).toMatch(/ran one [^]*ran two|ran two [^]*ran one/);
  });

  it('a lock of a start that was killed does not stand in the way', async () => {
    await writeFile(join(checkout, 'pnpm-lock.yaml'), 'changed\n');
    await mkdir(join(checkout, '.logpond'));
    await addProgram('npx', 'exit 0');
    const gone = spawn(process.execPath, ['-e', ''], { stdio: 'ignore' });
    await once(gone, 'exit');
    await writeFile(join(checkout, '.logpond', 'install.lock'), String(gone.pid));
    const { exited } = run(['target.ts']);
    expect(await exited).toEqual([0, null]);
  });

  it('an install that fails is said in one sentence and tried again by the next start', async () => {
    await writeFile(join(checkout, 'pnpm-lock.yaml'), 'changed\n');
    await addProgram('npx', 'exit 3');
    const { exited, output } = run(['target.ts']);
    expect(await exited).toEqual([1, null]);
    expect(output()).toMatch(/the packages could not be installed \(pnpm@[\d.]+ ended with 3;/);
    await addProgram('npx', 'exit 0');
    expect(await run(['target.ts']).exited).toEqual([0, null]);
  });

  it('without redis-server and apt-get it says what to install; with REDIS_URL the launcher needs none', async () => {
    await rm(join(programs, 'redis-server'));
    const without = run(['target.ts']);
    expect(await without.exited).toEqual([1, null]);
    expect(without.output()).toBe(
      'Logpond needs redis-server, which is not on PATH: install redis-server 7 or newer, or set REDIS_URL to a server that runs elsewhere.\n',
    );
    const launcher = join('apps', 'standalone', 'src', 'main.ts');
    await mkdir(join(checkout, dirname(launcher)), { recursive: true });
    await copyFile(join(checkout, 'target.ts'), join(checkout, launcher));
    const elsewhere = run([launcher], { REDIS_URL: 'redis://elsewhere' });
    expect(await elsewhere.exited).toEqual([0, null]);
  });

  it('a redis-server that is too old is refused with its version', async () => {
    await addProgram('redis-server', 'echo "Redis server v=6.0.16 sha=0"');
    const { exited, output } = run(['target.ts']);
    expect(await exited).toEqual([1, null]);
    expect(output()).toContain('needs redis-server 7 or newer');
    expect(output()).toContain('is 6.0.16');
  });
});
