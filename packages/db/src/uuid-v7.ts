import { randomBytes } from 'node:crypto';

/**
 * A UUID, version 7 (RFC 9562 §5.7): 48 bits of milliseconds, then 74 random bits.
 *
 * Ids of one millisecond are in no order. Not a secret.
 */
export function createUuidV7(nowMs: number): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(nowMs, 0, 6);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x70, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  const hex = bytes.toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

const UUID_SHAPE = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Whether a text can be an id of ours (lower case); what cannot is not worth a question or a place in a cache. */
export function isUuid(text: string): boolean {
  return UUID_SHAPE.test(text);
}
