import type { Level } from '@logpond/schema/log-entry';
import { isContainer } from './lossless-json.ts';

/** A log entry as `send` posts it. Without `time` the server gives its own. */
export type OutgoingEntry = {
  time?: string;
  service: string;
  level: Level;
  message: string;
  metadata: Record<string, unknown>;
  trace_id?: string;
  span_id?: string;
  session_id?: string;
};

// The limits of the interface (packages/schema has them too, but loading it costs each start of the
// command 80 ms of zod); a unit test holds the two equal.
export const LIMITS = {
  serviceChars: 100,
  messageBytes: 65_536,
  entryBytes: 262_144,
  metadataDepth: 32,
  metadataKeys: 256,
  correlationChars: 128,
} as const;

/** An object whose keys are all data, `__proto__` included. */
export function createMetadata(): Record<string, unknown> {
  return Object.create(null) as Record<string, unknown>;
}

/** Adds a field under its name, or under the name with underscores behind it when that is taken: nothing is overwritten. */
export function putField(metadata: Record<string, unknown>, key: string, value: unknown): void {
  let name = key;
  while (name in metadata) name += '_';
  metadata[name] = value;
}

/** True when the server takes an entry of this shape: depth, number of keys and size of the whole. */
export function fitsLimits(entry: OutgoingEntry): boolean {
  if (Buffer.byteLength(entry.message) > LIMITS.messageBytes) return false;
  let keys = 0;
  const stack: { value: Record<string, unknown> | unknown[]; depth: number }[] = [
    { value: entry.metadata, depth: 1 },
  ];
  for (let item = stack.pop(); item; item = stack.pop()) {
    if (item.depth > LIMITS.metadataDepth) return false;
    const values = Array.isArray(item.value) ? item.value : Object.values(item.value);
    if (!Array.isArray(item.value)) keys += values.length;
    if (keys > LIMITS.metadataKeys) return false;
    for (const value of values) if (isContainer(value)) stack.push({ value, depth: item.depth + 1 });
  }
  return Buffer.byteLength(JSON.stringify(entry)) <= LIMITS.entryBytes;
}

const PIECE_JSON_BYTES_MAX = 200_000;

/**
 * Cuts a message into pieces that the server takes: at most 65,536 bytes of UTF-8 and 200,000 bytes as
 * JSON each (a control character is 6 bytes there). Joined again they are the message.
 */
export function cutMessage(message: string): string[] {
  if (message.length <= LIMITS.messageBytes / 4) return [message];
  if (
    Buffer.byteLength(message) <= LIMITS.messageBytes &&
    Buffer.byteLength(JSON.stringify(message)) <= PIECE_JSON_BYTES_MAX
  ) {
    return [message];
  }
  // 65,536 bytes hold at least a third as many UTF-16 units, 200,000 of JSON at least a sixth.
  const pieces: string[] = [];
  for (let start = 0; start < message.length;) {
    let end = Math.min(start + Math.floor(LIMITS.messageBytes / 3), message.length);
    const code = message.charCodeAt(end - 1);
    if (end < message.length && code >= 0xd800 && code <= 0xdbff) end--;
    pieces.push(message.slice(start, end));
    start = end;
  }
  return pieces;
}
