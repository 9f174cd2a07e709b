import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeEntryId, decodeSeq, encodeEntryId, encodeSeq } from './entry-id.ts';

const identity = fc.record({
  epoch: fc.integer({ min: 0, max: 4095 }),
  shard: fc.integer({ min: 0, max: 255 }),
  offset: fc.integer({ min: 0, max: 2 ** 48 - 1 }),
});
const timeNs = fc.bigInt({ min: 0n, max: (1n << 63n) - 1n });

describe('entry ids', () => {
  it('give back time in ms, epoch, shard and offset', () => {
    fc.assert(
      fc.property(timeNs, identity, (ns, parts) => {
        const id = encodeEntryId(ns, parts);
        expect(decodeEntryId(id)).toEqual({ timeMs: Number(ns / 1_000_000n), ...parts });
        expect(decodeEntryId(id.toUpperCase())).toEqual(decodeEntryId(id));
      }),
    );
  });

  it('are UUIDs of version 8 that sort by time in ms', () => {
    fc.assert(
      fc.property(timeNs, timeNs, identity, identity, (ns1, ns2, parts1, parts2) => {
        const [id1, id2] = [encodeEntryId(ns1, parts1), encodeEntryId(ns2, parts2)];
        expect(id1).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
        const [ms1, ms2] = [ns1 / 1_000_000n, ns2 / 1_000_000n];
        expect(ms1 === ms2 || id1 < id2 === ms1 < ms2).toBe(true);
      }),
    );
  });

  it('keep their form for ever', () => {
    const id = encodeEntryId(1_769_860_800_123_456_789n, { epoch: 3, shard: 7, offset: 123_456_789 });
    expect(id).toBe('019c13ec-9e7b-8003-81c0-0001d6f34540');
  });

  it.each([
    '',
    'x',
    '019c13ec-9e7b-7003-81c0-0001d6f34540',
    '019c13ec-9e7b-8003-81c0-0001d6f34541',
    '019c13fa5c7b800381c00001d6f34540',
  ])('%s is not one', (id) => {
    expect(decodeEntryId(id)).toBeUndefined();
  });

  it('refuse what does not fit', () => {
    expect(() => encodeEntryId(0n, { epoch: 4096, shard: 0, offset: 0 })).toThrow(RangeError);
    expect(() => encodeEntryId(0n, { epoch: 0, shard: 256, offset: 0 })).toThrow(RangeError);
    expect(() => encodeEntryId(0n, { epoch: 0, shard: 0, offset: 2 ** 48 })).toThrow(RangeError);
    expect(() => encodeEntryId(-1_000_000n, { epoch: 0, shard: 0, offset: 0 })).toThrow(RangeError);
  });
});

it('seq gives back epoch and offset', () => {
  fc.assert(
    fc.property(identity, ({ epoch, offset }) => {
      expect(decodeSeq(encodeSeq(epoch, offset))).toEqual({ epoch, offset });
    }),
  );
});
