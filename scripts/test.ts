import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * `npm test`: the checks, then every ring of tests. The last line counts the tests as the report does, and
 * a run without a single passed test fails.
 */
const root = join(import.meta.dirname, '..');

function run(command: string, args: string[]): boolean {
  return spawnSync(command, args, { cwd: root, stdio: 'inherit' }).status === 0;
}

if (!run(process.execPath, [join(root, 'scripts/check.ts')])) process.exit(1);

const directory = mkdtempSync(join(tmpdir(), 'logpond-report-'));
const report = join(directory, 'report.json');
const isGreen = run('vitest', [
  'run',
  '--reporter=default',
  '--reporter=json',
  `--outputFile.json=${report}`,
]);
const { numPassedTests, numTotalTests } = JSON.parse(readFileSync(report, 'utf8')) as {
  numPassedTests: number;
  numTotalTests: number;
};
rmSync(directory, { recursive: true });
// A test that did not run is not a passed one, and a file that could not be loaded fails the run.
const failed = Math.max(numTotalTests - numPassedTests, isGreen ? 0 : 1);
console.log(`${numPassedTests} passed, ${failed} failed`);
process.exit(failed === 0 && numPassedTests > 0 ? 0 : 1);
