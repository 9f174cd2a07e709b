import { describe, expect, it } from 'vitest';
import { SHARD_TAGS, shardKeys, shardOf } from './shard-map.ts';

/** CRC-16/XMODEM modulo 16,384: how Redis Cluster places a key by its hash tag. */
function slotOf(tag: string): number {
  let crc = 0;
  for (const byte of Buffer.from(tag)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1)
      crc = crc & 0x8000 ? ((crc << 1) ^ 0x1021) & 0xffff : (crc << 1) & 0xffff;
  }
  return crc % 16_384;
}

describe('shard tags', () => {
  it.each([3, 4, 6, 8, 12])('spread 24 shards evenly over %i masters with equal slot ranges', (masters) => {
    const counts = Array.from({ length: masters }, () => 0);
    for (const tag of SHARD_TAGS) {
      const master = Math.floor((slotOf(tag) * masters) / 16_384);
      counts[master] = (counts[master] ?? 0) + 1;
    }
    expect(counts).toEqual(counts.map(() => 24 / masters));
  });

  it('put all keys of a shard on one slot', () => {
    const keys = shardKeys('lp', 5);
    const names = [
      keys.log,
      keys.state,
      keys.marks,
      keys.tailed,
      keys.lease('alert'),
      keys.idempotency('p', 'k'),
    ];
    expect(new Set(names.map((name) => /\{(.+?)\}/.exec(name)?.[1]))).toEqual(new Set([SHARD_TAGS[5]]));
  });
});

describe('shardOf', () => {
  it('uses every shard about equally and always answers the same', () => {
    const counts = Array.from({ length: 6 }, () => 0);
    for (let i = 0; i < 6_000; i += 1) {
      const projectId = `0190a5e0-0000-7000-8000-${i.toString(16).padStart(12, '0')}`;
      const shard = shardOf(projectId, 6);
      expect(shardOf(projectId, 6)).toBe(shard);
      counts[shard] = (counts[shard] ?? 0) + 1;
    }
    for (const count of counts) expect(count).toBeGreaterThan(800);
  });
});
