import type { CheckedEntry } from '@logpond/schema/log-entry';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeBlock } from './decode.ts';
import { BlockEncoder } from './encode.ts';
import { encodeSeq } from './entry-id.ts';
import type { NativePlan, PlanPart, PlanTarget } from './native.ts';
import { encodeNativePlan, NATIVE_COLUMNS } from './native.ts';
import { readUuidWire } from './uuid-bytes.ts';

const PROJECTS = ['01890000-aaaa-7bbb-8ccc-0123456789ab', '01890000-aaaa-7bbb-8ccc-0123456789ac'] as const;
const NOW_MS = 1_769_860_800_000;
const TARGET: PlanTarget = {
  epoch: 3,
  shard: 2,
  retentionClassOf: (projectId) => (projectId === PROJECTS[0] ? 30 : 365),
};

type Row = Record<string, string | number | bigint>;

/** An independent reader of the Native format, for the types of this table. */
function readNative(plan: NativePlan): Row[] {
  const bytes = Buffer.concat(plan.chunks);
  let at = 0;
  const readVarint = (): number => {
    let value = 0;
    for (let shift = 1; ; shift *= 128) {
      const byte = bytes.readUInt8(at++);
      value += (byte % 128) * shift;
      if (byte < 128) return value;
    }
  };
  const readText = (): string => {
    const length = readVarint();
    at += length;
    return bytes.toString('utf8', at - length, at);
  };
  const take = <T>(width: number, value: T): T => {
    at += width;
    return value;
  };
  const readValue = (type: string): string | number | bigint => {
    if (type === 'String') return readText();
    if (type === 'UUID') return take(16, readUuidWire(bytes, at));
    if (type === 'UInt16') return take(2, bytes.readUInt16LE(at));
    if (type === 'UInt64') return take(8, bytes.readBigUInt64LE(at));
    if (type.startsWith('DateTime64')) return take(8, bytes.readBigInt64LE(at));
    return take(1, bytes.readUInt8(at));
  };
  const columns = readVarint();
  const rows: Row[] = Array.from({ length: readVarint() }, () => ({}));
  for (let column = 0; column < columns; column += 1) {
    const name = readText();
    const type = readText();
    for (const row of rows) row[name] = readValue(type);
  }
  expect(at).toBe(bytes.length);
  return rows;
}

const entry: fc.Arbitrary<CheckedEntry> = fc.record(
  {
    timeNs: fc.integer({ min: 0, max: 1000 }).map((second) => BigInt(second) * 1_000_000_000n),
    level: fc.integer({ min: 1, max: 5 }),
    service: fc.string({ minLength: 1 }),
    message: fc.string({ unit: 'binary', maxLength: 200 }).map((text) => text.toWellFormed()),
    metadataJson: fc.constantFrom('{}', '{"a":1}'),
    traceId: fc.uuid(),
    spanId: fc.string({ minLength: 1 }),
  },
  { requiredKeys: ['timeNs', 'level', 'service', 'message', 'metadataJson'] },
);
const plan = fc.array(
  fc.array(fc.array(entry, { minLength: 1, maxLength: 20 }), { minLength: 1, maxLength: 4 }),
  {
    minLength: 1,
    maxLength: 4,
  },
);

/** Blocks of runs, one after another from offset `first`. */
function toParts(blocks: readonly (readonly (readonly CheckedEntry[])[])[], first: number): PlanPart[] {
  const encoder = new BlockEncoder();
  let firstOffset = first;
  return blocks.map((runs) => {
    for (const [index, run] of runs.entries()) {
      encoder.beginRun(PROJECTS[index % 2] ?? '', NOW_MS + index);
      for (const one of run) encoder.appendEntry(one);
      encoder.endRun(1);
    }
    const block = decodeBlock(encoder.finish(NOW_MS).block);
    const part = { block, firstOffset };
    firstOffset += block.rows;
    return part;
  });
}

function expectedRows(parts: readonly PlanPart[]): Row[] {
  return parts.flatMap(({ block, firstOffset }) =>
    [...block.entries()].map((one) => ({
      project_id: PROJECTS[one.runIndex % 2] ?? '',
      retention_days: one.runIndex % 2 === 0 ? 30 : 365,
      time: one.timeNs,
      seq: encodeSeq(3, firstOffset + one.row),
      shard: 2,
      received_at: BigInt(NOW_MS + one.runIndex),
      level: ['debug', 'info', 'warn', 'error', 'critical'].indexOf(one.level) + 1,
      service: one.service,
      message: one.message,
      metadata: one.metadataJson,
      trace_key: one.traceId ?? '00000000-0000-0000-0000-000000000000',
      trace_form: one.traceId === undefined ? 0 : 1,
      trace_text: '',
      span_id: one.spanId ?? '',
      session_id: '',
    })),
  );
}

describe('encodeNativePlan', () => {
  it('has every entry of every block once, in order, with its place in the shard', () => {
    fc.assert(
      fc.property(plan, fc.integer({ min: 1, max: 2 ** 33 }), (blocks, first) => {
        const parts = toParts(blocks, first);
        const native = encodeNativePlan(parts, TARGET);
        const expected = expectedRows(parts);
        expect(readNative(native)).toEqual(expected);
        expect(native).toMatchObject({ rows: expected.length, expired: 0 });
      }),
    );
  });

  it('leaves out exactly the rows that are not to be kept, and counts them', () => {
    fc.assert(
      fc.property(plan, fc.integer({ min: 0, max: 1000 }), (blocks, second) => {
        const parts = toParts(blocks, 2 ** 32 - 5);
        // Retention differs by project, as it does in life.
        const keepRow = (timeNs: bigint, projectId: string): boolean =>
          projectId === PROJECTS[1] || timeNs >= BigInt(second) * 1_000_000_000n;
        const native = encodeNativePlan(parts, { ...TARGET, keepRow });
        const all = expectedRows(parts);
        const expected = all.filter((row) => keepRow(row['time'] as bigint, row['project_id'] as string));
        expect(native).toMatchObject({ rows: expected.length, expired: all.length - expected.length });
        expect(native.rows === 0 ? [] : readNative(native)).toEqual(expected);
      }),
    );
  });

  it('is the same bytes each time', () => {
    const parts = toParts(fc.sample(plan, { seed: 1, numRuns: 1 })[0] ?? [], 1);
    const bytes = Buffer.concat(encodeNativePlan(parts, TARGET).chunks);
    expect(Buffer.concat(encodeNativePlan(parts, TARGET).chunks)).toEqual(bytes);
  });

  it('names the columns of the table in its order', () => {
    expect(NATIVE_COLUMNS.map(({ name }) => name).join(' ')).toBe(
      'project_id retention_days time seq shard received_at level service message metadata ' +
        'trace_key trace_form trace_text span_id session_id',
    );
  });

  it('of a plan of which nothing is kept is empty', () => {
    const parts = toParts([[[{ timeNs: 0n, level: 1, service: 'a', message: '', metadataJson: '{}' }]]], 1);
    expect(encodeNativePlan(parts, { ...TARGET, keepRow: () => false })).toEqual({
      chunks: [],
      rows: 0,
      expired: 1,
    });
  });
});
