#!/usr/bin/env node
// The `logpond` command. Plain JavaScript that runs on Node 20 without node_modules: it only finds a
// Node 24 (which runs TypeScript as it is) and hands over to apps/cli/src/main.ts.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(fileURLToPath(import.meta.url));
const target = join(root, 'apps/cli/src/main.ts');
const ownNodeMajor = Number(process.versions.node.split('.')[0]);

if (!existsSync(join(root, 'node_modules')) || !existsSync(join(root, 'apps/cli/node_modules'))) {
  refuse(`its packages are not installed in ${root}; run npm start there first`);
} else if (ownNodeMajor >= 24) {
  process.argv[1] = target;
  await import(target);
} else {
  const node = join(root, 'node_modules/.bin/node');
  if (existsSync(node)) runWith(node);
  else
    refuse(
      `it needs Node 24 or newer, this is ${process.versions.node}, and there is none in node_modules; run npm start in ${root} first`,
    );
}

/** @param {string} reason */
function refuse(reason) {
  process.stderr.write(`logpond cannot start: ${reason}.\n`);
  process.exitCode = 3;
}

/** @param {string} node */
function runWith(node) {
  const child = spawn(node, [target, ...process.argv.slice(2)], { stdio: 'inherit' });
  // Forwarded because a signal may be sent to this process alone; the command takes several signals
  // within half a second (a terminal sends Ctrl-C to the whole group) as one.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.on('error', (error) => refuse(`${node} did not start: ${error.message}`));
  child.on('exit', (code, signal) => {
    process.exit(code ?? 128 + (signal ? constants.signals[signal] : 0));
  });
}
