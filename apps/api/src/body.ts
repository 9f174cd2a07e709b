import type { IncomingMessage } from 'node:http';
import { ApiError } from '@logpond/schema/api-error';
import { inflate, parseContentEncoding } from './inflate.ts';
import type { BodyLease } from './body-memory.ts';

/** Where the bytes of a request come from: Node's socket, or a web stream when called in process. */
export type BodySource = {
  incoming: IncomingMessage | undefined;
  stream: () => ReadableStream<Uint8Array> | null;
  header: (name: string) => string | undefined;
};

/**
 * The body of a request, inflated; never more than `bytesMax` bytes, before and after inflating.
 *
 * @throws {ApiError} PAYLOAD_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE (an unknown or double Content-Encoding),
 *   VALIDATION_ERROR (cut short, or not what Content-Encoding says), UNAVAILABLE (too many bodies at once).
 */
export async function readBody(source: BodySource, bytesMax: number, lease: BodyLease): Promise<Buffer> {
  const encoding = parseContentEncoding(source.header('content-encoding'));
  const declared = source.header('content-length');
  // Number('') and NaN compare false; node has refused a length that is not a number.
  if (declared !== undefined && Number(declared) > bytesMax) throw tooLarge(bytesMax, Number(declared));
  const chunks: Buffer[] = [];
  const taker = makeTaker(chunks, bytesMax, lease);
  if (source.incoming === undefined) await readWebStream(source.stream(), taker);
  else await readIncoming(source.incoming, taker);
  const bytes = taker.total();
  const raw = bytes === 0 ? Buffer.alloc(0) : lease.gather(chunks, bytes);
  if (encoding === 'identity' || raw.length === 0) return raw;
  return inflate(raw, encoding, bytesMax, lease);
}

/** Smaller chunks are copied together: kept apart, each costs some 450 bytes, so one-byte chunks filled gigabytes. */
const KEPT_APART_BYTES_MIN = 1024;
const COPIED_BYTES = 16 * 1024;

type Taker = { take: (chunk: Uint8Array) => void; total: () => number };

function makeTaker(chunks: Buffer[], bytesMax: number, lease: BodyLease): Taker {
  let total = 0;
  let room: Buffer | undefined;
  let filled = 0;
  /** Puts a small chunk behind the small one before it, as long as there is room in its buffer. */
  const append = (chunk: Buffer): void => {
    if (room !== undefined && filled + chunk.length <= room.length) {
      filled += chunk.copy(room, filled);
      chunks[chunks.length - 1] = room.subarray(0, filled);
      return;
    }
    room = Buffer.allocUnsafeSlow(COPIED_BYTES);
    filled = chunk.copy(room);
    chunks.push(room.subarray(0, filled));
  };
  return {
    take: (chunk) => {
      total += chunk.byteLength;
      if (total > bytesMax) throw tooLarge(bytesMax, undefined);
      lease.reserve(chunk.byteLength);
      const bytes = Buffer.isBuffer(chunk)
        ? chunk
        : Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
      if (bytes.length < KEPT_APART_BYTES_MIN && chunks.length > 0) append(bytes);
      else {
        room = undefined;
        chunks.push(bytes);
      }
    },
    total: () => total,
  };
}

function tooLarge(bytesMax: number, got: number | undefined): ApiError {
  const what = got === undefined ? 'more' : `${got}`;
  return new ApiError('PAYLOAD_TOO_LARGE', {
    public: `expected a body of at most ${bytesMax} bytes, got ${what}; send smaller batches`,
  });
}

async function readWebStream(stream: ReadableStream<Uint8Array> | null, taker: Taker): Promise<void> {
  if (stream === null) return;
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      taker.take(value);
    }
  } catch (error) {
    // The rest is of no interest; a stream that failed cannot be cancelled and need not be.
    await reader.cancel().catch(() => {});
    throw error instanceof ApiError ? error : cutShort(error);
  }
}

/** Reads the socket directly: going through a web stream costs twice as much (performance.md §3). */
async function readIncoming(incoming: IncomingMessage, taker: Taker): Promise<void> {
  if (incoming.readableEnded) return;
  const done = Promise.withResolvers<void>();
  const onData = (chunk: Buffer): void => {
    try {
      taker.take(chunk);
    } catch (error) {
      settle(error);
    }
  };
  const onEnd = (): void => settle(undefined);
  const onLost = (error?: Error): void => settle(cutShort(error));
  const settle = (failure: unknown): void => {
    // At once: the `close` that follows every `end` would otherwise cost an error and its stack.
    incoming.off('data', onData).off('end', onEnd).off('error', onLost).off('close', onLost);
    if (failure === undefined) {
      done.resolve();
      return;
    }
    // A late error of a request that is given up must not be an uncaught one.
    incoming.on('error', () => {});
    done.reject(failure);
  };
  incoming.on('data', onData).on('end', onEnd).on('error', onLost).on('close', onLost);
  if (incoming.destroyed) onLost();
  await done.promise;
}

function cutShort(cause: unknown): ApiError {
  return new ApiError('VALIDATION_ERROR', { public: 'the body ended before its announced end', cause });
}
