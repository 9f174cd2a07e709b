import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { LogFilter } from '@logpond/schema/log-query';
import { StoreError } from './store-error.ts';

/** Where a page ended: the last entry's time and its seq (epoch << 48 | offset). */
export type SearchPosition = { timeNs: bigint; seq: bigint };

export type CursorBinding = {
  /** At least 32 bytes; the same in every API process. */
  secret: string;
  projectId: string;
  filter: LogFilter;
  order: 'asc' | 'desc';
};

/**
 * Layout, then base64url: version u8, order u8, time i64, seq u64 (big-endian), then 16 bytes of
 * HMAC-SHA-256 over these 18 bytes, the project and the hash of the filter.
 */
const VERSION = 1;
const PAYLOAD_BYTES = 18;
const MAC_BYTES = 16;
const ORDERS = ['desc', 'asc'] as const;

/** An opaque cursor that only this project, filter and order can use. */
export function encodeSearchCursor(position: SearchPosition, binding: CursorBinding): string {
  const payload = Buffer.alloc(PAYLOAD_BYTES);
  payload.writeUInt8(VERSION, 0);
  payload.writeUInt8(ORDERS.indexOf(binding.order), 1);
  payload.writeBigInt64BE(position.timeNs, 2);
  payload.writeBigUInt64BE(position.seq, 10);
  return Buffer.concat([payload, sign(payload, binding)]).toString('base64url');
}

/** The position in a cursor; throws StoreError `invalid_query` when it is broken or made for another search. */
export function decodeSearchCursor(cursor: string, binding: CursorBinding): SearchPosition {
  const bytes = Buffer.from(cursor, 'base64url');
  const payload = bytes.subarray(0, PAYLOAD_BYTES);
  const isWhole = bytes.length === PAYLOAD_BYTES + MAC_BYTES && bytes.toString('base64url') === cursor;
  if (!isWhole || !timingSafeEqual(bytes.subarray(PAYLOAD_BYTES), sign(payload, binding))) {
    throw new StoreError(
      'clickhouse',
      'invalid_query',
      'cursor: expected a nextCursor of the same project with the same filters and order, got another one',
    );
  }
  return { timeNs: payload.readBigInt64BE(2), seq: payload.readBigUInt64BE(10) };
}

function sign(payload: Buffer, binding: CursorBinding): Buffer {
  const mac = createHmac('sha256', binding.secret);
  mac
    .update(payload)
    .update(binding.projectId.toLowerCase())
    .update(binding.order)
    .update(hashFilter(binding.filter));
  return mac.digest().subarray(0, MAC_BYTES);
}

/** Equal for filters that mean the same: the order and number of repeated values does not matter. */
function hashFilter(filter: LogFilter): Buffer {
  const canonical = [
    filter.fromNs?.toString() ?? null,
    filter.toNs?.toString() ?? null,
    sortUnique(filter.services),
    sortUnique(filter.levels),
    sortUnique(filter.notServices),
    sortUnique(filter.notLevels),
    filter.text === undefined ? null : [filter.text.mode, filter.text.query],
    sortUnique(filter.notTexts),
    filter.traceId ?? null,
    filter.metadata.map(({ path, values }) => JSON.stringify([path, sortUnique(values)])).toSorted(),
  ];
  return createHash('sha256').update(JSON.stringify(canonical)).digest();
}

function sortUnique(values: readonly string[]): string[] {
  return [...new Set(values)].toSorted();
}
