import type { CheckedEntry } from '@logpond/schema/log-entry';
import { LEVELS } from '@logpond/schema/log-entry';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeBlock, readBlockHeader } from './decode.ts';
import type { ColumnId } from './layout.ts';
import { decodeDigest } from './digest.ts';
import type { EncodedBlock } from './encode.ts';
import { BlockEncoder } from './encode.ts';
import { BlockError, COLUMN } from './layout.ts';

const PROJECT = '01890000-aaaa-7bbb-8ccc-0123456789ab';
const OTHER = '01890000-aaaa-7bbb-8ccc-0123456789ac';
const NOW_MS = 1_769_860_800_000;
const PLAIN: CheckedEntry = {
  timeNs: 1_769_860_799_000_000_001n,
  level: 2,
  service: 'api',
  message: 'héllo',
  metadataJson: '{"a":1}',
};

const text = fc.oneof(fc.string({ unit: 'binary', maxLength: 300 }), fc.string({ maxLength: 30 }));
const trace = fc.oneof(
  fc.uuid(),
  fc.uuid().map((uuid) => uuid.toUpperCase()),
  fc.uuid().map((uuid) => uuid.replaceAll('-', '')),
  fc.string({ minLength: 1, maxLength: 40 }).map((one) => one.toWellFormed()),
);
const entry: fc.Arbitrary<CheckedEntry> = fc.record(
  {
    timeNs: fc.bigInt({ min: 0n, max: (1n << 63n) - 1n }),
    level: fc.integer({ min: 1, max: 5 }),
    service: text,
    message: text,
    metadataJson: text,
    traceId: trace,
    spanId: fc.string({ minLength: 1 }).map((one) => one.toWellFormed()),
    sessionId: fc.string({ minLength: 1 }).map((one) => one.toWellFormed()),
  },
  { requiredKeys: ['timeNs', 'level', 'service', 'message', 'metadataJson'] },
);
const runs = fc.array(fc.array(entry, { minLength: 1, maxLength: 40 }), { minLength: 1, maxLength: 5 });

function encode(encoder: BlockEncoder, batches: readonly (readonly CheckedEntry[])[]): EncodedBlock {
  for (const [index, batch] of batches.entries()) {
    encoder.beginRun(index % 2 === 0 ? PROJECT : OTHER, NOW_MS + index);
    for (const one of batch) encoder.appendEntry(one);
    encoder.endRun(100 + index);
  }
  return encoder.finish(NOW_MS);
}

/** What an entry reads as: levels by name, absent fields undefined. */
function expectedOf({ level, ...one }: CheckedEntry, runIndex: number, row: number): object {
  const absent = { traceId: undefined, spanId: undefined, sessionId: undefined };
  return { ...absent, ...one, level: LEVELS[level - 1], runIndex, row };
}

describe('a block', () => {
  it('gives every entry of every run back, with an encoder that is used again', () => {
    const encoder = new BlockEncoder();
    fc.assert(
      fc.property(runs, (batches) => {
        const { block, rows, runs: summaries } = encode(encoder, batches);
        const decoded = decodeBlock(block);
        let row = 0;
        const expected = batches.flatMap((batch, index) => batch.map((one) => expectedOf(one, index, row++)));
        expect([...decoded.entries()]).toEqual(expected);
        expect(decoded.rows).toBe(rows);
        expect(decoded.runs).toEqual(summaries);
        const last = batches.length - 1;
        expect([...decoded.entries(last)]).toEqual(expected.slice(-(batches[last]?.length ?? 0)));
      }),
    );
  });

  it('names projects, rows, bytes and time bounds of its runs without being decoded', () => {
    const early = { ...PLAIN, timeNs: 5n };
    const { block, runs: summaries } = encode(new BlockEncoder(), [[PLAIN, early], [PLAIN]]);
    const bounds = { minTimeNs: 5n, maxTimeNs: PLAIN.timeNs };
    const nowNs = BigInt(NOW_MS) * 1_000_000n;
    const rawBytes = [1, 2, 3, 4, 5].map((id) => decodeBlock(block).column(id as ColumnId).length);
    expect(readBlockHeader(block)).toEqual({
      rows: 3,
      receivedAtNs: nowNs,
      runs: summaries,
      rawBytes: rawBytes.reduce((sum, bytes) => sum + bytes, 0),
    });
    expect(summaries[0]).toEqual({
      projectId: PROJECT,
      rows: 2,
      bodyBytes: 100,
      receivedAtNs: nowNs,
      ...bounds,
    });
    expect(summaries[1]).toMatchObject({ projectId: OTHER, receivedAtNs: nowNs + 1_000_000n });
  });

  it('has a digest that counts its entries by run, level, second and service', () => {
    const { digest } = encode(new BlockEncoder(), [[PLAIN, PLAIN], [{ ...PLAIN, level: 4 }]]);
    const common = { second: 1_769_860_799, service: 'api' };
    expect(decodeDigest(digest)).toEqual([
      { ...common, runIndex: 0, level: 2, count: 2 },
      { ...common, runIndex: 1, level: 4, count: 1 },
    ]);
  });

  it('forgets an aborted run as if it had never begun', () => {
    fc.assert(
      fc.property(runs, fc.array(entry), runs, (before, aborted, after) => {
        const encoder = new BlockEncoder();
        for (const batch of before) {
          encoder.beginRun(PROJECT, NOW_MS);
          for (const one of batch) encoder.appendEntry(one);
          encoder.endRun(1);
        }
        const [rows, rawBytes] = [encoder.rows, encoder.rawBytes];
        encoder.beginRun(OTHER, NOW_MS);
        for (const one of aborted) encoder.appendEntry(one);
        encoder.abortRun();
        expect([encoder.rows, encoder.rawBytes]).toEqual([rows, rawBytes]);
        const mixed = encode(encoder, after);
        const clean = new BlockEncoder();
        for (const batch of before) {
          clean.beginRun(PROJECT, NOW_MS);
          for (const one of batch) clean.appendEntry(one);
          clean.endRun(1);
        }
        expect(mixed).toEqual(encode(clean, after));
      }),
      { numRuns: 30 },
    );
  });

  it('leaves out columns that hold nothing, which then read as default', () => {
    const decoded = decodeBlock(encode(new BlockEncoder(), [[PLAIN, PLAIN]]).block);
    expect(decoded.isAbsent(COLUMN.traceKey)).toBe(true);
    expect(decoded.column(COLUMN.traceKey)).toEqual(Buffer.alloc(32));
    expect(decoded.column(COLUMN.spanId)).toEqual(Buffer.alloc(2));
  });

  it('compresses what is worth it', () => {
    const { block } = encode(new BlockEncoder(), [Array.from({ length: 1000 }, () => PLAIN)]);
    expect(block.length).toBeLessThan(1000);
    expect([...decodeBlock(block).entries()]).toHaveLength(1000);
  });

  it('holds at most 65,535 rows', () => {
    const encoder = new BlockEncoder();
    encoder.beginRun(PROJECT, NOW_MS);
    for (let row = 0; row < 65_535; row += 1) encoder.appendEntry(PLAIN);
    expect(() => encoder.appendEntry(PLAIN)).toThrow(RangeError);
    encoder.endRun(1);
    expect(readBlockHeader(encoder.finish(NOW_MS).block).rows).toBe(65_535);
  });
});

it('a run that makes the block too large can be forgotten, and the rest is written', () => {
  const encoder = new BlockEncoder();
  encoder.beginRun(PROJECT, NOW_MS);
  encoder.appendEntry(PLAIN);
  encoder.endRun(1);
  const large = { ...PLAIN, message: 'x'.repeat(65_536) };
  encoder.beginRun(OTHER, NOW_MS);
  for (let row = 0; row < 1024; row += 1) encoder.appendEntry(large);
  expect(() => encoder.endRun(1)).toThrow(RangeError);
  encoder.abortRun();
  expect([...decodeBlock(encoder.finish(NOW_MS).block).entries()]).toHaveLength(1);
});

describe('a golden block', () => {
  // Written by the first version; every later one must read it and, being uncompressed, write it byte for byte.
  const GOLDEN =
    '4c50424201000000030000000a0001000080e33d05cf8f18983e262b00000000010000001800000018000000020000000c00' +
    '00000c000000030000000300000003000000040000000f0000000f0000000500000013000000130000000600000030000000' +
    '300000000700000003000000030000000800000027000000270000000900000005000000050000000a000000040000000400' +
    '000001890000aaaa7bbb8ccc0123456789ab03000000640000000080e33d05cf8f1801b6480205cf8f1801b6480205cf8f18' +
    '01b6480205cf8f1801b6480205cf8f1801b6480205cf8f180361706903617069036170690205010668c3a96c6c6f0668c3a9' +
    '6c6c6f00077b2261223a317d027b7d077b2261223a317d00000000000000000000000000000000efcdab8967452301efcdab' +
    '8967452301bb7baaaa00008901ab8967452301cc8c00020300002430313839303030302d414141412d376262622d38636363' +
    '2d303132333435363738396162000273310000000175';
  const ENTRIES: CheckedEntry[] = [
    PLAIN,
    { ...PLAIN, level: 5, traceId: '0123456789abcdef0123456789abcdef', spanId: 's1', metadataJson: '{}' },
    { ...PLAIN, level: 1, traceId: '01890000-AAAA-7bbb-8ccc-0123456789ab', sessionId: 'u', message: '' },
  ];

  it('is written as ever', () => {
    expect(encode(new BlockEncoder(), [ENTRIES]).block.toString('hex')).toBe(GOLDEN);
  });

  it('is read as ever', () => {
    const entries = [...decodeBlock(Buffer.from(GOLDEN, 'hex')).entries()];
    expect(entries).toEqual(ENTRIES.map((one, row) => expectedOf(one, 0, row)));
  });

  it('with LZ4 segments is read as ever', () => {
    const block = Buffer.from(
      '4c50424201000000c8000000050001000080e33d05cf8f180610cac100000000010100001900000040060000020100001200' +
        '00002003000003000000c8000000c800000004010000170000007805000005010000190000004006000001890000aaaa7bbb' +
        '8ccc0123456789abc8000000640000000080e33d05cf8f1801b6480205cf8f1801b6480205cf8f188f01b6480205cf8f1808' +
        '00ffffffffffff2560480205cf8f184f036170690400ffffff06607069036170690202020202020202020202020202020202' +
        '0202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202' +
        '0202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202' +
        '0202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202' +
        '0202020202020202020202020202020202020202020202020202020202020202027f0668c3a96c6c6f0700ffffffffff5d60' +
        '68c3a96c6c6f8f077b2261223a317d0800ffffffffffff25602261223a317d',
      'hex',
    );
    const entries = [...decodeBlock(block).entries()];
    expect(entries).toHaveLength(200);
    expect(entries[199]).toEqual(expectedOf(PLAIN, 0, 199));
  });
});

describe('a poison block', () => {
  const { block } = encode(new BlockEncoder(), [Array.from({ length: 200 }, () => PLAIN), [PLAIN]]);

  it('is refused at every length', () => {
    for (let length = 0; length < block.length; length += 1) {
      expect(() => decodeBlock(block.subarray(0, length))).toThrow(BlockError);
    }
    expect(() => decodeBlock(Buffer.concat([block, Buffer.alloc(1)]))).toThrow(BlockError);
  });

  it('is refused with any bit changed, save the reserved ones and the time of the flush', () => {
    const isFree = (at: number): boolean =>
      (at >= 5 && at < 8) || (at >= 16 && at < 24) || (at >= 28 && at < 32);
    for (let bit = 0; bit < block.length * 8; bit += 1) {
      if (isFree(bit >> 3)) continue;
      const changed = Buffer.from(block);
      changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      expect(() => [...decodeBlock(changed).entries()]).toThrow(BlockError);
    }
  });

  it('says which version it has', () => {
    const changed = Buffer.from(block);
    changed[4] = 2;
    expect(() => decodeBlock(changed)).toThrow('expected block version 1, got 2');
  });
});
