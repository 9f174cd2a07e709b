import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** The command line of a running process, or undefined when there is none with this id. */
export function readCommandLine(pid: number): string | undefined {
  try {
    if (process.platform === 'linux') {
      const text = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
      // A zombie has an empty one.
      return text === '' ? undefined : text;
    }
    return (
      execFileSync('ps', ['-o', 'command=', '-p', String(pid)], { encoding: 'utf8' }).trim() || undefined
    );
  } catch {
    return undefined;
  }
}

/** True when process `pid` runs and its command line holds one of `marks`: ids are used again, so an id says little. */
export function isRunning(pid: number, marks: readonly string[]): boolean {
  const commandLine = readCommandLine(pid);
  return commandLine !== undefined && marks.some((mark) => commandLine.includes(mark));
}
