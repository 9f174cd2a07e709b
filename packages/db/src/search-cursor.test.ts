import type { LogFilter } from '@logpond/schema/log-query';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeSearchCursor, encodeSearchCursor } from './search-cursor.ts';
import type { CursorBinding } from './search-cursor.ts';

const filter: LogFilter = {
  services: ['api', 'db'],
  levels: ['error'],
  notServices: [],
  notLevels: [],
  notTexts: [],
  metadata: [{ path: 'a', values: ['1', '2'] }],
};
const binding: CursorBinding = {
  secret: 's'.repeat(32),
  projectId: '11111111-1111-4111-8111-111111111111',
  filter,
  order: 'desc',
};
const position = { timeNs: 1_795_269_287_289_000_001n, seq: (3n << 48n) | 17n };

describe('a search cursor', () => {
  it('gives back the exact position', () => {
    const times = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
    const seqs = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
    fc.assert(
      fc.property(times, seqs, (timeNs, seq) => {
        const cursor = encodeSearchCursor({ timeNs, seq }, binding);
        expect(decodeSearchCursor(cursor, binding)).toEqual({ timeNs, seq });
      }),
    );
  });

  it('is good for the same filter with its values in another order or repeated', () => {
    const same = { ...filter, services: ['db', 'api', 'db'], metadata: [{ path: 'a', values: ['2', '1'] }] };
    expect(decodeSearchCursor(encodeSearchCursor(position, binding), { ...binding, filter: same })).toEqual(
      position,
    );
  });

  it.each([
    ['another project', { projectId: '21111111-1111-4111-8111-111111111111' }],
    ['another order', { order: 'asc' as const }],
    ['another secret', { secret: 't'.repeat(32) }],
    ['another service', { filter: { ...filter, services: ['api'] } }],
    ['a value moved to the exclusions', { filter: { ...filter, services: ['api'], notServices: ['db'] } }],
    ['a text', { filter: { ...filter, text: { mode: 'fulltext' as const, query: 'x' } } }],
    ['a range', { filter: { ...filter, fromNs: 1n } }],
    ['a trace', { filter: { ...filter, traceId: 'x' } }],
    ['another metadata path', { filter: { ...filter, metadata: [{ path: 'b', values: ['1', '2'] }] } }],
  ])('is refused with %s', (_, change) => {
    const cursor = encodeSearchCursor(position, binding);
    expect(() => decodeSearchCursor(cursor, { ...binding, ...change })).toThrow(/expected a nextCursor/);
  });

  it('is refused when any of its bytes was changed, added or taken away', () => {
    const bytes = Buffer.from(encodeSearchCursor(position, binding), 'base64url');
    for (let index = 0; index < bytes.length; index++) {
      const changed = Buffer.from(bytes);
      changed.writeUInt8(bytes.readUInt8(index) ^ 1, index);
      expect(() => decodeSearchCursor(changed.toString('base64url'), binding)).toThrow(/cursor/);
    }
    for (const text of [
      '',
      'x',
      '!',
      `${bytes.toString('base64url')}A`,
      bytes.toString('base64url').slice(1),
    ]) {
      expect(() => decodeSearchCursor(text, binding)).toThrow(/cursor/);
    }
  });
});
