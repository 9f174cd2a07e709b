import { addDashes } from './uuid-bytes.ts';

/** What makes a log entry one: generation of the log stream, shard, place in the shard. */
export type EntryIdentity = { epoch: number; shard: number; offset: number };

const OFFSET_BITS = 48n;
const OFFSET_MASK = (1n << OFFSET_BITS) - 1n;
const OFFSET_MAX = 2 ** 48 - 1;
const EPOCH_MAX = 2 ** 12 - 1;
const SHARD_MAX = 2 ** 8 - 1;
const TIME_MS_MAX = 2 ** 48 - 1;
const OFFSET_LOW_RANGE = 2 ** 42;

function toHex(value: number, digits: number): string {
  return value.toString(16).padStart(digits, '0');
}

function checkRange(name: string, value: number, max: number): void {
  if (!Number.isInteger(value) || value < 0 || value > max) {
    throw new RangeError(`expected ${name} to be an integer from 0 to ${max}, got ${value}`);
  }
}

/**
 * The public id of a log entry (storage.md §4): a UUID of version 8. 48 bits of the entry's time in ms, version,
 * 12 bits epoch, variant, 8 bits shard, 48 bits offset, 6 bits zero. Reversible; sorting ids sorts by time.
 * Throws RangeError when a part does not fit.
 */
export function encodeEntryId(timeNs: bigint, { epoch, shard, offset }: EntryIdentity): string {
  const timeMs = Number(timeNs / 1_000_000n);
  checkRange('time in ms', timeMs, TIME_MS_MAX);
  checkRange('epoch', epoch, EPOCH_MAX);
  checkRange('shard', shard, SHARD_MAX);
  checkRange('offset', offset, OFFSET_MAX);
  const high = 0x8000 + shard * 64 + Math.floor(offset / OFFSET_LOW_RANGE);
  const low = (offset % OFFSET_LOW_RANGE) * 64;
  return addDashes(`${toHex(timeMs, 12)}8${toHex(epoch, 3)}${toHex(high, 4)}${toHex(low, 12)}`);
}

/** The parts of a public id, in any letter case; undefined when the text is not an id that encodeEntryId makes. */
export function decodeEntryId(id: string): ({ timeMs: number } & EntryIdentity) | undefined {
  const match = /^([0-9a-f]{8})-([0-9a-f]{4})-8([0-9a-f]{3})-([89ab][0-9a-f]{3})-([0-9a-f]{12})$/i.exec(id);
  if (match === null) return undefined;
  const [, timeHigh = '', timeLow = '', epoch = '', high = '', low = ''] = match;
  const highBits = Number.parseInt(high, 16) - 0x8000;
  const lowBits = Number.parseInt(low, 16);
  if (lowBits % 64 !== 0) return undefined;
  return {
    timeMs: Number.parseInt(timeHigh + timeLow, 16),
    epoch: Number.parseInt(epoch, 16),
    shard: Math.floor(highBits / 64),
    offset: (highBits % 64) * OFFSET_LOW_RANGE + lowBits / 64,
  };
}

/** The order of an entry within its shard as ClickHouse keeps it: epoch << 48 | offset. */
export function encodeSeq(epoch: number, offset: number): bigint {
  return (BigInt(epoch) << OFFSET_BITS) | BigInt(offset);
}

/** The parts of encodeSeq. */
export function decodeSeq(seq: bigint): { epoch: number; offset: number } {
  return { epoch: Number(seq >> OFFSET_BITS), offset: Number(seq & OFFSET_MASK) };
}
