import {
  brotliDecompressSync,
  constants,
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

/**
 * Compressed bodies up to `inputBytesMax` that grow to no more than `outputBytes`, or `ratio` times their size, are
 * inflated at once. The others are inflated in steps: so others get their turn, and what a bomb grew to is given back
 * at once. The garbage collector would do so some 50 MB later.
 */
const AT_ONCE = { inputBytesMax: 256 * 1024, outputBytes: 256 * 1024, ratio: 8 } as const;
const STEP_BYTES = 64 * 1024;
/** A window that is allocated once: grown by and by, it leaves twice its size with every thread that inflates. */
const BROTLI_PARAMS = { [constants.BROTLI_DECODER_PARAM_DISABLE_RING_BUFFER_REALLOCATION]: 1 };
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
  const isSmall = raw.length <= AT_ONCE.inputBytesMax;
  if (isSmall) {
    const atOnceMax = Math.max(AT_ONCE.outputBytes, raw.length * AT_ONCE.ratio);
    const bytes = inflateAtOnce(raw, encoding, Math.min(outputMax, atOnceMax));
    if (bytes !== undefined) {
      lease.reserve(bytes.length);
      return bytes;
    }
    if (outputMax <= atOnceMax) throw tooLarge(outputMax);
  }
  return inTurn(isSmall ? 'small' : 'large', async () => inflateInSteps(raw, encoding, outputMax, lease));
}

const queues = { small: Promise.resolve<unknown>(undefined), large: Promise.resolve<unknown>(undefined) };

/**
 * One after the other: each may hold a body of the largest size, and bombs come in crowds. Small bodies do not wait for
 * large ones.
 */
async function inTurn<T>(queue: keyof typeof queues, work: () => Promise<T>): Promise<T> {
  const turn = queues[queue].then(work);
  queues[queue] = turn.catch(() => undefined);
  return turn;
}

/** What zlib returns with `info`: how much of the input belonged to the stream is in `bytesWritten`. */
type Inflated = { buffer: Buffer; engine: { bytesWritten: number } };

/** Undefined: it grows beyond `outputMax`. */
function inflateAtOnce(raw: Buffer, encoding: Encoding, outputMax: number): Buffer | undefined {
  const options = { maxOutputLength: outputMax, info: true };
  try {
    const { buffer, engine } = decompressSync(encoding, raw)(raw, options) as Inflated;
    assertAllUsed(engine.bytesWritten, raw.length);
    return buffer;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ERR_BUFFER_TOO_LARGE') return undefined;
    throw mapInflateError(error, encoding);
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
    return Buffer.concat(chunks, total);
  } catch (error) {
    throw mapInflateError(error, encoding);
  } finally {
    stream.destroy();
    for (const chunk of chunks) giveBack(chunk);
  }
}

/** Frees a chunk's memory now. One that does not fill its buffer may share it with the next that zlib writes. */
function giveBack({ buffer, byteLength }: Buffer): void {
  if (byteLength === STEP_BYTES && buffer.byteLength === STEP_BYTES) (buffer as ArrayBuffer).transfer(0);
}

function openInflater(raw: Buffer, encoding: Encoding): Transform {
  const options = { chunkSize: STEP_BYTES };
  if (encoding === 'gzip') return createGunzip(options);
  if (encoding === 'br') return createBrotliDecompress({ ...options, params: BROTLI_PARAMS });
  if (encoding === 'zstd') return createZstdDecompress(options);
  return hasZlibHeader(raw) ? createInflate(options) : createInflateRaw(options);
}

function tooLarge(outputMax: number): ApiError {
  return new ApiError('PAYLOAD_TOO_LARGE', {
    public: `expected a body that inflates to at most ${outputMax} bytes, got more; send smaller batches`,
  });
}

function mapInflateError(error: unknown, encoding: Encoding): unknown {
  if (error instanceof ApiError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return new ApiError('VALIDATION_ERROR', {
    public: `expected a complete ${encoding} body as Content-Encoding says; ${reason.slice(0, 80)}`,
    cause: error,
  });
}
