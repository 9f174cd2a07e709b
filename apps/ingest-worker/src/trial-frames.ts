import type { StreamBlock } from '@logpond/db/stream-block';

/** What the process says when it has started; then the offset of each block that it got past, a line each. */
export const TRIAL_READY = 'ready\n';

const HEAD_BYTES = 12;

/** A block as it is sent to the process that tries it: offset (f64), length (u32), bytes. */
export function frameBlock({ firstOffset, block }: StreamBlock): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeDoubleLE(firstOffset, 0);
  head.writeUInt32LE(block.length, 8);
  return Buffer.concat([head, block]);
}

/** Reads frames until the input ends. Holds one block and one chunk of the input at most. */
export async function* readBlocksTried(
  input: AsyncIterable<Buffer>,
): AsyncGenerator<{ firstOffset: number; block: Buffer }> {
  let chunks: Buffer[] = [];
  let held = 0;
  let wanted = HEAD_BYTES;
  for await (const chunk of input) {
    chunks.push(chunk);
    held += chunk.length;
    while (held >= wanted) {
      const bytes = Buffer.concat(chunks);
      chunks = [bytes];
      wanted = HEAD_BYTES + bytes.readUInt32LE(8);
      if (held < wanted) break;
      yield { firstOffset: bytes.readDoubleLE(0), block: bytes.subarray(HEAD_BYTES, wanted) };
      chunks = [bytes.subarray(wanted)];
      held -= wanted;
      wanted = HEAD_BYTES;
    }
  }
}
