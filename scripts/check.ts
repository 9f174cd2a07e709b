import { spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';

/** Everything that is checked without running the product. `--fix` mends what can be mended by itself. */
const { values } = parseArgs({ options: { fix: { type: 'boolean', default: false } } });

const steps: [name: string, command: string, ...args: string[]][] = [
  ['format', 'oxfmt', values.fix ? '--write' : '--check', '.'],
  ['lint', 'oxlint', '--type-aware', '--deny-warnings', ...(values.fix ? ['--fix'] : [])],
  ['types', 'tsc', '--project', '.'],
  ['dead code', 'knip'],
];

for (const [name, command, ...args] of steps) {
  const startedAt = performance.now();
  const { status, error } = spawnSync(command, args, { stdio: 'inherit' });
  if (error !== undefined) console.error(`cannot run ${command}; ${error.message}`);
  console.log(
    `check: ${name} ${status === 0 ? 'ok' : 'FAILED'} (${((performance.now() - startedAt) / 1_000).toFixed(1)} s)`,
  );
  if (status !== 0) process.exit(1);
}
