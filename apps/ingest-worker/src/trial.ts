import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import type { StreamBlock } from '@logpond/db/stream-block';
import { ShardGivenBack } from '@logpond/db/store-retry';
import type { Shard } from './shard.ts';
import { frameBlock, TRIAL_READY } from './trial-frames.ts';

const PROGRAM = fileURLToPath(new URL('trial-process.ts', import.meta.url));
/** A block that takes longer has ended its process too. */
const BLOCK_MS_MAX = 60_000;
/** Processes that a block must end, one after the other, to be a killer: one may be ended by somebody else. */
const DEATHS = 2;
/** Starts that may fail before a plan is read without a trial. */
const STARTS_MAX = 3;

/**
 * Lets a process of its own decode blocks, and finds those that end it, whatever ended the workers before: a block is
 * never given up because workers died for other reasons.
 *
 * Bound: two processes a killer, one more, and three that do not start.
 *
 * @returns first offsets of the blocks that ended two processes in a row.
 * @throws {ShardGivenBack} when the shard is to be given back.
 */
export async function findKillers(shard: Shard, blocks: readonly StreamBlock[]): Promise<Set<number>> {
  const killers = new Set<number>();
  let left = blocks.filter(({ damage }) => damage === undefined);
  let deaths = 0;
  let failedStarts = 0;
  while (left.length > 0 && failedStarts < STARTS_MAX) {
    const { hasStarted, passed } = await tryBlocks(left, shard.signal);
    if (shard.signal.aborted) throw new ShardGivenBack('stopping amid the trial of a plan');
    if (!hasStarted) failedStarts += 1;
    if (passed > 0) deaths = 0;
    left = left.slice(passed);
    const [suspect] = left;
    if (!hasStarted || suspect === undefined) continue;
    deaths += 1;
    shard.log.warn({ firstOffset: suspect.firstOffset, deaths }, 'a block ended the process that tried it');
    if (deaths < DEATHS) continue;
    killers.add(suspect.firstOffset);
    left = left.slice(1);
    deaths = 0;
  }
  if (failedStarts >= STARTS_MAX) shard.log.error('the process that tries blocks does not start');
  return killers;
}

/** Runs one process until it ends or has passed all blocks. */
async function tryBlocks(
  blocks: readonly StreamBlock[],
  signal: AbortSignal,
): Promise<{ hasStarted: boolean; passed: number }> {
  const child = spawn(process.execPath, [PROGRAM], { stdio: ['pipe', 'pipe', 'ignore'] });
  const kill = (): void => {
    child.kill('SIGKILL');
  };
  signal.addEventListener('abort', kill, { once: true });
  let watchdog = setTimeout(kill, BLOCK_MS_MAX);
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    said += text;
    clearTimeout(watchdog);
    watchdog = setTimeout(kill, BLOCK_MS_MAX);
  });
  // A process that died does not take the rest, which is what is to be found out.
  const sent = pipeline(Readable.from(frameAll(blocks)), child.stdin).catch(() => {});
  try {
    await Promise.all([once(child, 'close'), sent]);
  } catch {
    // It could not be started.
  } finally {
    clearTimeout(watchdog);
    signal.removeEventListener('abort', kill);
  }
  const lines = said.split('\n').length - 1;
  return { hasStarted: said.startsWith(TRIAL_READY), passed: Math.max(0, lines - 1) };
}

/** One at a time: all together would be the plan once more in memory. */
function* frameAll(blocks: readonly StreamBlock[]): Generator<Buffer> {
  for (const block of blocks) yield frameBlock(block);
}
