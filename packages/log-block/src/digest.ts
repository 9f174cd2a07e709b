import { BlockError } from './layout.ts';

/** How many entries of one run have this level, this service and a `time` in this second (since 1970). */
export type DigestItem = { runIndex: number; level: number; second: number; service: string; count: number };

/** A run with more items has none in the digest: its readers decode the block's columns. */
const DIGEST_ITEMS_MAX = 256;
const ITEM_BYTES = 14;
const DIGEST_SECOND_MAX = 2 ** 32 - 1;

/** Counts the entries of one run. Services are at most 100 characters, so an item is at most 414 bytes. */
export class DigestCounter {
  /** By service, then by second (from the first entry's) and level in one number. */
  #counts = new Map<string, Map<number, number>>();
  #items = 0;
  #firstSecond = 0;

  add(level: number, second: number, service: string): void {
    if (this.#items > DIGEST_ITEMS_MAX) return;
    if (this.#items === 0) this.#firstSecond = second;
    let ofService = this.#counts.get(service);
    if (ofService === undefined) {
      ofService = new Map();
      this.#counts.set(service, ofService);
    }
    const key = (second - this.#firstSecond) * 8 + level;
    const count = ofService.get(key) ?? 0;
    if (count === 0) this.#items += 1;
    ofService.set(key, count + 1);
  }

  /** The run's items, none when there are too many, and starts over. */
  take(runIndex: number): DigestItem[] {
    const items: DigestItem[] = [];
    for (const [service, ofService] of this.#counts) {
      for (const [key, count] of ofService) {
        const level = ((key % 8) + 8) % 8;
        items.push({ runIndex, level, second: this.#firstSecond + (key - level) / 8, service, count });
      }
    }
    const isComplete =
      this.#items <= DIGEST_ITEMS_MAX && items.every(({ second }) => second <= DIGEST_SECOND_MAX);
    this.clear();
    return isComplete ? items : [];
  }

  clear(): void {
    if (this.#items === 0) return;
    this.#counts.clear();
    this.#items = 0;
  }
}

/**
 * Field `d` beside a block (performance.md §4), little-endian, per item: run u16, level u8, reserved u8, second u32,
 * count u32, service length u16, service in UTF-8.
 */
export function encodeDigest(items: readonly DigestItem[]): Buffer {
  const services = items.map(({ service }) => Buffer.from(service, 'utf8'));
  const digest = Buffer.alloc(services.reduce((bytes, service) => bytes + ITEM_BYTES + service.length, 0));
  let at = 0;
  for (const [index, { runIndex, level, second, count }] of items.entries()) {
    const service = services[index] ?? Buffer.alloc(0);
    digest.writeUInt16LE(runIndex, at);
    digest.writeUInt8(level, at + 2);
    digest.writeUInt32LE(second, at + 4);
    digest.writeUInt32LE(count, at + 8);
    digest.writeUInt16LE(service.length, at + 12);
    digest.set(service, at + ITEM_BYTES);
    at += ITEM_BYTES + service.length;
  }
  return digest;
}

/** The items of a digest. A run of the block without any must be decoded. Throws BlockError when it is cut short. */
export function decodeDigest(digest: Buffer): DigestItem[] {
  const items: DigestItem[] = [];
  for (let at = 0; at < digest.length;) {
    const end = at + ITEM_BYTES + (at + ITEM_BYTES <= digest.length ? digest.readUInt16LE(at + 12) : 0);
    if (end > digest.length)
      throw new BlockError(`expected a digest item of ${end - at} bytes, got ${digest.length - at}`);
    items.push({
      runIndex: digest.readUInt16LE(at),
      level: digest.readUInt8(at + 2),
      second: digest.readUInt32LE(at + 4),
      count: digest.readUInt32LE(at + 8),
      service: digest.toString('utf8', at + ITEM_BYTES, end),
    });
    at = end;
  }
  return items;
}
