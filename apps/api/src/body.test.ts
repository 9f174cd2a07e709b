import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { randomBytes } from 'node:crypto';
import { ApiError } from '@logpond/schema/api-error';
import { describe, expect, it } from 'vitest';
import { readBody } from './body.ts';
import { BodyMemory } from './body-memory.ts';

const CAP = 10 * 1024 * 1024;
const encoders = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync, zstd: zstdCompressSync };

async function read(body: Uint8Array[], headers: Record<string, string> = {}, cap = CAP): Promise<Buffer> {
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of body) controller.enqueue(chunk);
      controller.close();
    },
  });
  const source = { incoming: undefined, stream: () => stream, header: (name: string) => headers[name] };
  return readBody(source, cap, new BodyMemory().lease());
}

async function refusal(work: Promise<unknown>): Promise<string> {
  try {
    await work;
  } catch (error) {
    if (error instanceof ApiError) return `${error.statusCode} ${error.code}`;
    throw error;
  }
  return 'accepted';
}

describe('readBody', () => {
  it('gathers chunks in order, pooled or not', async () => {
    expect((await read([Buffer.from('ab'), Buffer.from('cd')])).toString()).toBe('abcd');
    const large = [randomBytes(900_000), randomBytes(900_000)];
    expect(Buffer.concat(large).equals(await read(large))).toBe(true);
    expect((await read([])).length).toBe(0);
  });

  it('holds a body of one-byte chunks in few buffers, in order among larger chunks', async () => {
    const body = Buffer.from(randomBytes(50_000).toString('hex'));
    const tiny = Array.from(body.subarray(0, 90_000), (byte) => Buffer.from([byte]));
    const all = [
      ...tiny,
      body.subarray(90_000, 95_000),
      ...Array.from(body.subarray(95_000), (byte) => Buffer.from([byte])),
    ];
    const lease = new BodyMemory().lease();
    let held = 0;
    const gather: typeof lease.gather = (chunks, bytes) => {
      held = chunks.length;
      return lease.gather(chunks, bytes);
    };
    const source = { incoming: undefined, stream: () => ReadableStream.from(all), header: () => undefined };
    expect((await readBody(source, CAP, { ...lease, gather })).equals(body)).toBe(true);
    expect(held).toBeLessThan(12);
  });

  for (const [encoding, compress] of Object.entries(encoders)) {
    it(`inflates ${encoding}, small at once and large in steps`, async () => {
      const small = Buffer.from('{"logs":[]}');
      expect((await read([compress(small)], { 'content-encoding': encoding })).equals(small)).toBe(true);
      const large = Buffer.from(randomBytes(600_000).toString('hex'));
      const packed = compress(large);
      expect(packed.length).toBeGreaterThan(256 * 1024);
      expect((await read([packed], { 'content-encoding': encoding })).equals(large)).toBe(true);
    });

    it(`inflates ${encoding} that grows more than eightfold, many at once`, async () => {
      const texts = Array.from({ length: 8 }, (_, index) =>
        Buffer.from(`entry ${index} of many, `.repeat(20_000)),
      );
      const packed = texts.map((text) => compress(text));
      expect(Math.max(...packed.map(({ length }) => length))).toBeLessThan(32 * 1024);
      const all = await Promise.all(packed.map(async (raw) => read([raw], { 'content-encoding': encoding })));
      expect(all.every((bytes, index) => bytes.equals(texts[index] ?? Buffer.alloc(0)))).toBe(true);
    });

    it(`refuses a bomb in ${encoding} with 413, also one of several members`, async () => {
      const bomb = compress(Buffer.alloc(64 * 1024 * 1024));
      expect(await refusal(read([bomb], { 'content-encoding': encoding }))).toBe('413 PAYLOAD_TOO_LARGE');
    });

    it(`refuses ${encoding} that is cut short or something else with 400, at once and in steps`, async () => {
      for (const text of [
        Buffer.from('x'.repeat(5_000)),
        Buffer.from(randomBytes(600_000).toString('hex')),
      ]) {
        const packed = compress(text);
        const cut = packed.subarray(0, packed.length - 7);
        expect(await refusal(read([cut], { 'content-encoding': encoding }))).toBe('400 VALIDATION_ERROR');
        expect(await refusal(read([text], { 'content-encoding': encoding }))).toBe('400 VALIDATION_ERROR');
      }
    });
  }

  it('a small body that grows much does not wait for large ones', async () => {
    const large = gzipSync(Buffer.from(randomBytes(600_000).toString('hex')));
    const small = gzipSync('one entry of many, '.repeat(20_000));
    const done: string[] = [];
    const readAs = async (name: string, body: Buffer): Promise<void> => {
      await read([body], { 'content-encoding': 'gzip' });
      done.push(name);
    };
    const all = Array.from({ length: 8 }, async () => readAs('large', large));
    await Promise.all([...all, readAs('small', small)]);
    expect(done).toHaveLength(9);
    expect(done.at(-1)).toBe('large');
  });

  it('refuses what follows the end of a stream instead of dropping it, and takes several gzip members', async () => {
    const text = Buffer.from('{"a":1}');
    const outcomes = Object.entries(encoders).map(async ([encoding, compress]) =>
      refusal(read([Buffer.concat([compress(text), compress(text)])], { 'content-encoding': encoding })),
    );
    expect(await Promise.all(outcomes)).toEqual([
      'accepted',
      ...Array.from({ length: 3 }, () => '400 VALIDATION_ERROR'),
    ]);
  });

  it('takes raw deflate for deflate, as many clients send it', async () => {
    const text = Buffer.from('hello hello hello');
    expect((await read([deflateRawSync(text)], { 'content-encoding': 'deflate' })).equals(text)).toBe(true);
  });

  it('refuses more than 200 times its size above 1 MB, even under the cap', async () => {
    const packed = gzipSync(Buffer.alloc(4 * 1024 * 1024));
    expect(await refusal(read([packed], { 'content-encoding': 'gzip' }))).toBe('413 PAYLOAD_TOO_LARGE');
    const under = gzipSync(Buffer.alloc(900_000));
    expect((await read([under], { 'content-encoding': 'gzip' })).length).toBe(900_000);
  });

  it('refuses unknown and double codings with 415', async () => {
    for (const coding of ['lzma', 'gzip, gzip', 'gzip, br', 'identity, compress']) {
      expect(await refusal(read([Buffer.from('x')], { 'content-encoding': coding }))).toBe(
        '415 UNSUPPORTED_MEDIA_TYPE',
      );
    }
    expect((await read([Buffer.from('x')], { 'content-encoding': 'identity' })).toString()).toBe('x');
    expect((await read([gzipSync('x')], { 'content-encoding': 'X-GZIP' })).toString()).toBe('x');
  });

  it('refuses a body over the cap with 413, announced or not', async () => {
    expect(await refusal(read([Buffer.alloc(10)], { 'content-length': '101' }, 100))).toBe(
      '413 PAYLOAD_TOO_LARGE',
    );
    expect(await refusal(read([Buffer.alloc(60), Buffer.alloc(60)], {}, 100))).toBe('413 PAYLOAD_TOO_LARGE');
    expect((await read([Buffer.alloc(100)], {}, 100)).length).toBe(100);
  });
});

describe('BodyMemory', () => {
  it('refuses bodies beyond 256 MB in all, and takes them again when others are done', () => {
    const memory = new BodyMemory();
    const first = memory.lease();
    first.reserve(250 * 1024 * 1024);
    const second = memory.lease();
    expect(() => second.reserve(10 * 1024 * 1024)).toThrow(ApiError);
    first.release(true);
    second.reserve(10 * 1024 * 1024);
  });

  it('recycles a buffer only when the caller says that nothing refers to it', () => {
    const memory = new BodyMemory();
    const chunks = [Buffer.from('a'), Buffer.from('b')];
    const kept = memory.lease();
    const keptBytes = kept.gather(chunks, 2);
    kept.release(false);
    const recycled = memory.lease();
    const recycledBytes = recycled.gather(chunks, 2);
    expect(recycledBytes.buffer).not.toBe(keptBytes.buffer);
    recycled.release(true);
    expect(memory.lease().gather(chunks, 2).buffer).toBe(recycledBytes.buffer);
  });
});

describe('BodyMemory', () => {
  it('keeps room for callers with credentials however much strangers send', () => {
    const bodies = new BodyMemory();
    const strangers = Array.from({ length: 16 }, () => bodies.lease(true));
    for (const lease of strangers) lease.reserve(1024 * 1024);
    expect(() => bodies.lease(true).reserve(1)).toThrow(/too many large bodies/);
    const known = bodies.lease();
    known.reserve(240 * 1024 * 1024);
    expect(() => bodies.lease().reserve(1)).toThrow(/too many large bodies/);
    strangers[0]?.release(false);
    bodies.lease(true).reserve(1024 * 1024);
    expect(() => bodies.lease(true).reserve(1)).toThrow(/too many large bodies/);
  });
});
