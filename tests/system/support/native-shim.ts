import { execFile } from 'node:child_process';
import { createHash, randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const SOURCES = join(import.meta.dirname, '../../native');
const COMPILE_MS_MAX = 60_000;

export type ShimName = 'power-loss-shim' | 'clock-shim';

const libraries = new Map<ShimName, Promise<string>>();

/**
 * Compiles a shim once for each state of its source; the library stays for the next run.
 *
 * @returns the path of the library, for LD_PRELOAD.
 * @throws {Error} when there is no C compiler: a fault that cannot be injected is not passed over in silence.
 */
export async function compileShim(name: ShimName): Promise<string> {
  const known = libraries.get(name) ?? compile(name);
  libraries.set(name, known);
  return known;
}

async function compile(name: ShimName): Promise<string> {
  const source = join(SOURCES, `${name}.c`);
  const hash = createHash('sha256').update(readFileSync(source)).digest('hex').slice(0, 16);
  const directory = join(tmpdir(), 'logpond-shims');
  const finished = join(directory, `${name}-${hash}.so`);
  if (existsSync(finished)) return finished;
  mkdirSync(directory, { recursive: true });
  // Under a name of its own until it is whole: others may be compiling it too.
  const library = join(directory, `${name}-${randomUUID()}.so`);
  const args = ['-O2', '-Wall', '-Wextra', '-Werror', '-shared', '-fPIC', '-o', library, source, '-ldl'];
  try {
    await promisify(execFile)('cc', args, { timeout: COMPILE_MS_MAX });
  } catch (error) {
    const reason =
      error instanceof Error && 'code' in error && error.code === 'ENOENT' ? 'there is none' : '';
    throw new Error(
      `expected a C compiler (cc) for tests/native/${name}.c; ${reason || String(error)}. Install gcc`,
      { cause: error },
    );
  }
  renameSync(library, finished);
  return finished;
}
