import { decodeBlock } from '@logpond/log-block/decode';
import type { DecodedBlock } from '@logpond/log-block/decode';
import { BlockError, COLUMN } from '@logpond/log-block/layout';

/** Of the wire numbers of levels, which begin at 1 (layout.ts). */
const LEVEL_MAX = 5;

/** The block with all its columns, or what is wrong with it. */
export function tryDecode(block: Buffer): DecodedBlock | string {
  try {
    const decoded = decodeBlock(block);
    // Columns are inflated when they are asked for; a damaged one must not come up amid an insert or a burial.
    for (const id of Object.values(COLUMN)) decoded.column(id);
    const level = decoded.column(COLUMN.level).find((number) => number < 1 || number > LEVEL_MAX);
    if (level !== undefined) return `expected levels from 1 to ${LEVEL_MAX}, got ${level}`;
    return decoded;
  } catch (error) {
    if (error instanceof BlockError || error instanceof RangeError) return error.message;
    throw error;
  }
}
