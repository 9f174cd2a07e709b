import { decodeBlock } from '@logpond/log-block/decode';
import { decodeDigest } from '@logpond/log-block/digest';
import type { DigestItem } from '@logpond/log-block/digest';
import { BlockError } from '@logpond/log-block/layout';
import type { StreamBlock } from '@logpond/db/stream-block';
import { BlockColumns } from './block-columns.ts';

/** One block of the stream; digest and columns are read when they are first asked for, once for all its runs. */
export class BlockReader {
  readonly #block: StreamBlock;
  #digest: ReadonlyMap<number, readonly DigestItem[]> | undefined;
  #columns: BlockColumns | BlockError | undefined;

  constructor(block: StreamBlock) {
    this.#block = block;
  }

  /** What the digest says of a run. Undefined when it does not account for all `rows` of it: then columns must be read. */
  readDigest(runIndex: number, rows: number): readonly DigestItem[] | undefined {
    this.#digest ??= groupDigest(this.#block.digest);
    const items = this.#digest.get(runIndex);
    const counted = items?.reduce((sum, { count }) => sum + count, 0);
    return counted === rows ? items : undefined;
  }

  /** @throws {BlockError} each time, when the block is damaged. */
  readColumns(): BlockColumns {
    this.#columns ??= tryDecode(this.#block.block);
    if (this.#columns instanceof BlockError) throw this.#columns;
    return this.#columns;
  }
}

/** A damaged digest is none: the columns say it all again. */
function groupDigest(digest: Buffer): ReadonlyMap<number, readonly DigestItem[]> {
  const groups = new Map<number, DigestItem[]>();
  let items: DigestItem[];
  try {
    items = decodeDigest(digest);
  } catch (error) {
    if (error instanceof BlockError) return groups;
    throw error;
  }
  for (const item of items) {
    const group = groups.get(item.runIndex);
    if (group === undefined) groups.set(item.runIndex, [item]);
    else group.push(item);
  }
  return groups;
}

function tryDecode(block: Buffer): BlockColumns | BlockError {
  try {
    return new BlockColumns(decodeBlock(block));
  } catch (error) {
    if (error instanceof BlockError) return error;
    if (error instanceof RangeError) return new BlockError(error.message, { cause: error });
    throw error;
  }
}
