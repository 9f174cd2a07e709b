import { ClickHouseError } from '@clickhouse/client';
import { describe, expect, it } from 'vitest';
import { isBrokenConnection, readOverload, summarizeRefusal, toStoreError } from './clickhouse-error.ts';
import { StoreError } from './store-error.ts';

function errorOf(code: string, message = 'text'): ClickHouseError {
  return new ClickHouseError({ code, message, type: 'TYPE' });
}

describe('toStoreError', () => {
  it.each([
    ['158', 'read', 'too_expensive'],
    ['159', 'read', 'too_expensive'],
    ['241', 'read', 'too_expensive'],
    ['307', 'read', 'too_expensive'],
    ['396', 'read', 'too_expensive'],
    ['427', 'read', 'invalid_query'],
    ['202', 'read', 'unavailable'],
    ['60', 'read', 'unavailable'],
    ['159', 'internal', 'unavailable'],
    ['241', 'insert', 'unavailable'],
    ['252', 'insert', 'unavailable'],
    ['117', 'insert', 'invalid_query'],
    ['33', 'insert', 'invalid_query'],
    ['469', 'insert', 'invalid_query'],
    ['999', 'insert', 'unavailable'],
  ] as const)('takes code %s of a %s as %s', (code, use, kind) => {
    const error = toStoreError(errorOf(code), use);
    expect(error).toBeInstanceOf(StoreError);
    expect(error.kind).toBe(kind);
    expect(error.cause).toBeInstanceOf(ClickHouseError);
  });

  it('takes the memory limit of the whole server as unavailable', () => {
    expect(toStoreError(errorOf('241', '(total) memory limit exceeded'), 'read').kind).toBe('unavailable');
  });

  it('takes a block that spans too many partitions as the fault of its data', () => {
    const message = 'Too many partitions for single INSERT block (more than 100)';
    expect(toStoreError(errorOf('252', message), 'insert').kind).toBe('invalid_query');
  });

  it('takes what never reached ClickHouse as unavailable, and a StoreError as it is', () => {
    expect(toStoreError(new Error('connect ECONNREFUSED'), 'insert')).toMatchObject({
      kind: 'unavailable',
      message: 'ClickHouse did not answer: connect ECONNREFUSED',
    });
    const known = new StoreError('redis', 'conflict', 'x');
    expect(toStoreError(known, 'read')).toBe(known);
  });

  it('keeps the code in the message, and the message short', () => {
    const { message } = toStoreError(errorOf('117', 'x'.repeat(10_000)), 'insert');
    expect(message).toMatch(/^ClickHouse code 117 \(TYPE\): x/);
    expect(message.length).toBeLessThan(600);
  });
});

describe('readOverload', () => {
  it.each([
    ['too many parts', errorOf('252', 'Too many parts (300). Merges are slower than inserts'), 'parts'],
    ['too many partitions', errorOf('252', 'Too many partitions for single INSERT block'), undefined],
    ['memory', errorOf('241'), 'memory'],
    ['too many queries', errorOf('202'), 'busy'],
    ['a 503 of a proxy, which has a text and no code', new Error('Service Unavailable'), 'busy'],
    ['a refused connection', Object.assign(new Error('no'), { code: 'ECONNREFUSED' }), undefined],
    ['bad data', errorOf('117'), undefined],
    ['anything else', errorOf('999'), undefined],
  ])('of an insert that failed for %s', (_, cause, expected) => {
    expect(readOverload(toStoreError(cause, 'insert'))).toBe(expected);
  });
});

describe('summarizeRefusal', () => {
  it('names code and type, and none of the values that ClickHouse quotes', () => {
    const error = toStoreError(
      errorOf('469', `violated at row 2. Column values: message = 'secret'`),
      'insert',
    );
    expect(summarizeRefusal(error)).toBe('ClickHouse code 469 (TYPE)');
  });
});

describe('isBrokenConnection', () => {
  it('is true only of a connection that broke', () => {
    expect(isBrokenConnection(Object.assign(new Error('read'), { code: 'ECONNRESET' }))).toBe(true);
    expect(isBrokenConnection(new Error('socket hang up'))).toBe(true);
    expect(isBrokenConnection(Object.assign(new Error('no'), { code: 'ECONNREFUSED' }))).toBe(false);
    expect(isBrokenConnection(errorOf('159'))).toBe(false);
  });
});
