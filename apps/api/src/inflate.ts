import {
  brotliDecompressSync,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
  createZstdDecompress,
  gunzipSync,
  inflateRawSync,
  inflateSync,
  zstdDecompressSync,
} from 'node:zlib';
import type { Transform } from 'node:stream';
import { ApiError } from '@logpond/schema/api-error';
import type { BodyLease } from './body-memory.ts';

/** Compressed bodies up to this size are inflated at once; larger ones in steps, so that others get their turn. */
const SYNC_INPUT_BYTES_MAX = 256 * 1024;
/** Output beyond which a body that grew more than 200-fold is taken for a bomb. */
const FREE_OUTPUT_BYTES = 1024 * 1024;
const RATIO_MAX = 200;

const ENCODINGS = ['gzip', 'deflate', 'br', 'zstd'] as const;
type Encoding = (typeof ENCODINGS)[number];

/**
 * The one coding of a body.
 *
 * @throws {ApiError} UNSUPPORTED_MEDIA_TYPE for an unknown coding, or more than one.
 */
export function parseContentEncoding(header: string | undefined): Encoding | 'identity' {
  if (header === undefined) return 'identity';
  const codings = header
    .split(',')
    .map((coding) => coding.trim().toLowerCase())
    .filter((coding) => coding !== '' && coding !== 'identity');
  const [first] = codings;
  if (first === undefined) return 'identity';
  const name = first === 'x-gzip' ? 'gzip' : first;
  const known = ENCODINGS.find((encoding) => encoding === name);
  if (known === undefined || codings.length > 1) {
    throw new ApiError('UNSUPPORTED_MEDIA_TYPE', {
      public: `expected one Content-Encoding of ${ENCODINGS.join(', ')} or none, got ${JSON.stringify(header.slice(0, 80))}`,
    });
  }
  return known;
}

/**
 * Inflates a body under the cap; above 1 MB of output also under 200 times its size (S25).
 *
 * @throws {ApiError} PAYLOAD_TOO_LARGE over either cap; VALIDATION_ERROR when the bytes are not `encoding`
 *   or are cut short.
 */
export async function inflate(
  raw: Buffer,
  encoding: Encoding,
  bytesMax: number,
  lease: BodyLease,
): Promise<Buffer> {
  const outputMax = Math.min(bytesMax, Math.max(FREE_OUTPUT_BYTES, raw.length * RATIO_MAX));
  if (raw.length <= SYNC_INPUT_BYTES_MAX) {
    const bytes = inflateAtOnce(raw, encoding, outputMax);
    lease.reserve(bytes.length);
    return bytes;
  }
  return inTurn(async () => inflateInSteps(raw, encoding, outputMax, lease));
}

let inflating: Promise<unknown> = Promise.resolve();

/** One after the other: each may hold a body of the largest size, and bombs come in crowds. */
async function inTurn<T>(work: () => Promise<T>): Promise<T> {
  const turn = inflating.then(work);
  inflating = turn.catch(() => undefined);
  return turn;
}

/** What zlib returns with `info`: how much of the input belonged to the stream is in `bytesWritten`. */
type Inflated = { buffer: Buffer; engine: { bytesWritten: number } };

function inflateAtOnce(raw: Buffer, encoding: Encoding, outputMax: number): Buffer {
  const options = { maxOutputLength: outputMax, info: true };
  try {
    const { buffer, engine } = decompressSync(encoding, raw)(raw, options) as Inflated;
    assertAllUsed(engine.bytesWritten, raw.length);
    return buffer;
  } catch (error) {
    throw mapInflateError(error, encoding, outputMax);
  }
}

function decompressSync(
  encoding: Encoding,
  raw: Buffer,
): (raw: Buffer, options: { maxOutputLength: number; info: boolean }) => unknown {
  if (encoding === 'gzip') return gunzipSync;
  if (encoding === 'br') return brotliDecompressSync;
  if (encoding === 'zstd') return zstdDecompressSync;
  return hasZlibHeader(raw) ? inflateSync : inflateRawSync;
}

/** Entries behind the end of the first stream would be dropped without a word. */
function assertAllUsed(usedBytes: number, rawBytes: number): void {
  if (usedBytes !== rawBytes) throw new Error(`${rawBytes - usedBytes} bytes follow its end`);
}

/** "deflate" means zlib's format, but clients that send the bare stream are common (RFC 9110 §8.4.1.2). */
function hasZlibHeader(raw: Buffer): boolean {
  const [method = 0, flags = 0] = raw;
  return (method & 0x0f) === 8 && ((method << 8) | flags) % 31 === 0;
}

async function inflateInSteps(
  raw: Buffer,
  encoding: Encoding,
  outputMax: number,
  lease: BodyLease,
): Promise<Buffer> {
  const stream = openInflater(raw, encoding);
  const chunks: Buffer[] = [];
  let total = 0;
  try {
    stream.end(raw);
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      total += chunk.length;
      if (total > outputMax) throw tooLarge(outputMax);
      lease.reserve(chunk.length);
      chunks.push(chunk);
    }
    assertAllUsed((stream as Transform & { bytesWritten: number }).bytesWritten, raw.length);
  } catch (error) {
    throw mapInflateError(error, encoding, outputMax);
  } finally {
    stream.destroy();
  }
  return Buffer.concat(chunks, total);
}

function openInflater(raw: Buffer, encoding: Encoding): Transform {
  const options = { chunkSize: 64 * 1024 };
  if (encoding === 'gzip') return createGunzip(options);
  if (encoding === 'br') return createBrotliDecompress(options);
  if (encoding === 'zstd') return createZstdDecompress(options);
  return hasZlibHeader(raw) ? createInflate(options) : createInflateRaw(options);
}

function tooLarge(outputMax: number): ApiError {
  return new ApiError('PAYLOAD_TOO_LARGE', {
    public: `expected a body that inflates to at most ${outputMax} bytes, got more; send smaller batches`,
  });
}

function mapInflateError(error: unknown, encoding: Encoding, outputMax: number): unknown {
  if (error instanceof ApiError) return error;
  if (error instanceof Error && 'code' in error && error.code === 'ERR_BUFFER_TOO_LARGE')
    return tooLarge(outputMax);
  const reason = error instanceof Error ? error.message : String(error);
  return new ApiError('VALIDATION_ERROR', {
    public: `expected a complete ${encoding} body as Content-Encoding says; ${reason.slice(0, 80)}`,
    cause: error,
  });
}
