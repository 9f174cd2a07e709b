// Runs a TypeScript program of this repository on a bare machine: node bootstrap.mjs TARGET.ts [args…]
//
// Plain JavaScript for Node 20 and without packages, because it is what installs them. It brings, each only when
// missing: the packages of pnpm-lock.yaml, Node 24 (one of those packages) and redis-server 7 (from apt, as
// root). Then it runs TARGET with that Node and exits as it does. When all is there it only looks.

/* oxlint-disable typescript/no-unsafe-argument, typescript/no-unsafe-assignment, typescript/no-unsafe-call, typescript/no-unsafe-member-access, typescript/no-unsafe-return -- plain JavaScript has no types to check */
/* oxlint-disable node/no-process-env -- runs before the package that reads the environment can be loaded */

import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { delimiter, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const PNPM = 'pnpm@12.21.0';
const NODE_MAJOR_MIN = 20;
const NODE_MAJOR_NEEDED = 24;
const REDIS_MAJOR_MIN = 7;
/** An install touches its lock every second; one that has not for this long is dead. */
const LOCK_STALE_MS = 15_000;
const LOCK_BEAT_MS = 1_000;

const root = fileURLToPath(new URL('.', import.meta.url));
const binDir = join(root, 'node_modules', '.bin');
const stampFile = join(root, 'node_modules', '.logpond-lock-hash');
const lockFile = join(root, '.logpond', 'install.lock');

/** Processes that are run as one machine's launcher runs them (apps/standalone/src/children.ts). */
const OWN_PROCESS = /^apps\/(?:api|ingest-worker|alert-worker)\/src\/main\.ts$/;
/** Targets that talk to a Redis of their configuration, or to none. All others may start one of their own. */
const WITHOUT_REDIS = /^(?:apps\/(?:api|ingest-worker|alert-worker|cli)\/|scripts\/check\.ts$)/;

class BootstrapError extends Error {}

try {
  const [target, ...args] = process.argv.slice(2);
  if (target === undefined) throw new BootstrapError('usage: node bootstrap.mjs TARGET.ts [arguments]');
  if (majorOf(process.versions.node) < NODE_MAJOR_MIN) {
    throw new BootstrapError(
      `Logpond needs Node ${NODE_MAJOR_MIN} or newer to start, and this is ${process.versions.node}: install a newer one from https://nodejs.org.`,
    );
  }
  const needsRedis = !WITHOUT_REDIS.test(target) && !(target.startsWith('apps/') && process.env.REDIS_URL);
  if (!arePackagesCurrent() || (needsRedis && findRedis() === undefined)) await installUnderLock(needsRedis);
  if (needsRedis) checkRedis();
  runTarget(findNode(), target, args);
} catch (error) {
  if (!(error instanceof BootstrapError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 1;
}

// --- what is there

function majorOf(version) {
  return Number(version.split('.')[0]);
}

function lockHash() {
  return createHash('sha256')
    .update(fs.readFileSync(join(root, 'pnpm-lock.yaml')))
    .update(`${process.platform}-${process.arch}`)
    .digest('hex');
}

function arePackagesCurrent() {
  try {
    return fs.readFileSync(stampFile, 'utf8') === lockHash();
  } catch {
    return false;
  }
}

function findProgram(name) {
  for (const directory of (process.env.PATH ?? '').split(delimiter)) {
    if (directory === '') continue;
    try {
      fs.accessSync(join(directory, name), fs.constants.X_OK);
      return join(directory, name);
    } catch {
      // Not in this directory.
    }
  }
  return undefined;
}

function findRedis() {
  return findProgram('redis-server');
}

function checkRedis() {
  const program = findRedis();
  const output = program === undefined ? '' : String(spawnSync(program, ['--version']).stdout);
  const version = /v=(\d+\.\d+\.\d+)/.exec(output)?.[1];
  if (version === undefined || majorOf(version) < REDIS_MAJOR_MIN) {
    throw new BootstrapError(
      `Logpond needs redis-server ${REDIS_MAJOR_MIN} or newer, and ${program} is ${version ?? 'something else'}: install a newer one, or set REDIS_URL to a server that runs elsewhere.`,
    );
  }
}

function findNode() {
  if (majorOf(process.versions.node) >= NODE_MAJOR_NEEDED) return process.execPath;
  const program = join(binDir, 'node');
  if (fs.existsSync(program)) return program;
  throw new BootstrapError(
    `Logpond needs Node ${NODE_MAJOR_NEEDED}, which npm brings for Linux on x64 and arm64 only: on ${process.platform}-${process.arch} install it from https://nodejs.org (this is ${process.versions.node}).`,
  );
}

// --- bringing what is not

/** One install at a time in a checkout: the second waits and then finds everything there. */
async function installUnderLock(needsRedis) {
  await takeLock();
  const beat = setInterval(() => {
    const now = new Date();
    fs.utimesSync(lockFile, now, now);
  }, LOCK_BEAT_MS);
  try {
    if (!arePackagesCurrent()) await installPackages();
    if (needsRedis && findRedis() === undefined) await installRedis();
  } finally {
    clearInterval(beat);
    fs.rmSync(lockFile, { force: true });
  }
}

async function takeLock() {
  try {
    fs.mkdirSync(join(root, '.logpond'), { recursive: true, mode: 0o700 });
    fs.accessSync(join(root, '.logpond'), fs.constants.W_OK);
    fs.accessSync(root, fs.constants.W_OK);
  } catch (error) {
    throw new BootstrapError(
      `cannot write in ${root}: ${error.message}; start as the user that owns the checkout.`,
    );
  }
  let hasSaid = false;
  for (;;) {
    try {
      const fd = fs.openSync(lockFile, 'wx', 0o600);
      fs.writeFileSync(fd, String(process.pid));
      fs.closeSync(fd);
      return;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    if (isLockStale()) {
      // Renamed, not removed: of two that see it stale only one gets it.
      const aside = `${lockFile}.${process.pid}`;
      try {
        fs.renameSync(lockFile, aside);
        fs.rmSync(aside);
      } catch (error) {
        if (error.code !== 'ENOENT') throw error;
      }
      continue;
    }
    if (!hasSaid) say('another start is installing in this checkout; waiting for it');
    hasSaid = true;
    await delay(200);
  }
}

function isLockStale() {
  try {
    const pid = Number(fs.readFileSync(lockFile, 'utf8'));
    const isSilent = Date.now() - fs.statSync(lockFile).mtimeMs > LOCK_STALE_MS;
    return isSilent || (pid > 0 && !isAlive(pid));
  } catch (error) {
    if (error.code === 'ENOENT') return false;
    throw error;
  }
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

async function installPackages() {
  say(`installing packages with ${PNPM} (once; about a minute)`);
  const hash = lockHash();
  const args = ['--yes', PNPM, 'install', '--frozen-lockfile', '--config.confirm-modules-purge=false'];
  const code = await run('npx', args, {});
  if (code !== 0) {
    throw new BootstrapError(
      `the packages could not be installed (${PNPM} ended with ${code}; the reason is above): check that the npm registry can be reached and that the disk has 2 GB free, then start again.`,
    );
  }
  fs.writeFileSync(stampFile, hash);
}

async function installRedis() {
  const hint = 'install redis-server 7 or newer, or set REDIS_URL to a server that runs elsewhere.';
  const isRoot = process.getuid?.() === 0;
  if (findProgram('apt-get') === undefined) {
    throw new BootstrapError(`Logpond needs redis-server, which is not on PATH: ${hint}`);
  }
  if (!isRoot) {
    throw new BootstrapError(
      `Logpond needs redis-server, which is not on PATH, and only root can install it: run "sudo apt-get install redis-server", or set REDIS_URL to a server that runs elsewhere.`,
    );
  }
  say('installing redis-server with apt-get (once)');
  const env = { DEBIAN_FRONTEND: 'noninteractive' };
  const args = ['install', '-y', '-q', '--no-install-recommends', 'redis-server'];
  const code = await withoutServices(async () => {
    if (hasPackageLists() && (await run('apt-get', args, env)) === 0) return 0;
    await run('apt-get', ['update', '-q'], env);
    return run('apt-get', args, env);
  });
  if (code !== 0 || findRedis() === undefined) {
    throw new BootstrapError(
      `redis-server could not be installed (apt-get ended with ${code}; the reason is above): ${hint}`,
    );
  }
}

/** Keeps Debian from starting a server of its own on port 6379, with and without systemd: Logpond runs its own. */
async function withoutServices(work) {
  const policy = '/usr/sbin/policy-rc.d';
  if (fs.existsSync(policy)) return work();
  fs.writeFileSync(policy, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  try {
    return await work();
  } finally {
    fs.rmSync(policy, { force: true });
  }
}

function hasPackageLists() {
  try {
    return fs.readdirSync('/var/lib/apt/lists').some((name) => name.includes('_Packages'));
  } catch {
    return false;
  }
}

function say(text) {
  process.stderr.write(`logpond: ${text}\n`);
}

/** Runs a program with its output shown; resolves with its exit code. Its output is progress, so it goes to stderr. */
function run(command, args, env) {
  return new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd: root,
      env: { ...process.env, ...env },
      stdio: ['ignore', 2, 2],
    });
    child.on('error', (error) => {
      say(`cannot run ${command}: ${error.message}`);
      resolve(127);
    });
    child.on('exit', (code, signal) => resolve(code ?? signal));
  });
}

// --- running the target

function readNodeFlags() {
  return JSON.parse(fs.readFileSync(join(root, 'packages/runtime/src/node-flags.json'), 'utf8'));
}

function runTarget(node, target, args) {
  const path = `${binDir}${delimiter}${process.env.PATH ?? ''}`;
  const flags = OWN_PROCESS.test(target) ? readNodeFlags() : [];
  const child = spawn(node, [...flags, join(root, target), ...args], {
    stdio: 'inherit',
    env: { ...process.env, PATH: path },
  });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    process.on(signal, () => {
      // A terminal sends Ctrl-C to the child as well; a second one would cut its orderly stop short.
      if (signal === 'SIGINT' && process.stdin.isTTY) return;
      child.kill(signal);
    });
  }
  child.on('error', (error) => {
    process.stderr.write(`cannot run ${node}: ${error.message}\n`);
    process.exitCode = 1;
  });
  child.on('exit', (code, signal) => {
    process.exitCode = code ?? (signal === 'SIGINT' ? 130 : signal === 'SIGTERM' ? 143 : 1);
  });
}
