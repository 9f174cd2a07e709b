import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pingRedis, spawnRedis } from './redis.ts';

let dataDir = '';
let redis: Awaited<ReturnType<typeof spawnRedis>>;

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'logpond redis-'));
  redis = await spawnRedis({ dataDir, maxmemoryBytes: 100_000_000 });
});

afterAll(async () => {
  await redis.stop();
  await rm(dataDir, { recursive: true, force: true });
});

/** Sends inline commands and reads until the server has closed the connection after QUIT. */
async function send(...commands: string[]): Promise<string> {
  const socket = connect({ port: redis.port, host: '127.0.0.1' });
  await once(socket, 'connect');
  socket.end(`${commands.join('\r\n')}\r\nQUIT\r\n`);
  let answer = '';
  for await (const part of socket.setEncoding('utf8') as AsyncIterable<string>) answer += part;
  return answer;
}

const auth = (): string => `AUTH ${decodeURIComponent(new URL(redis.url).password)}`;

describe('spawnRedis', () => {
  it.each([
    ['appendonly', 'yes'],
    ['appendfsync', 'always'],
    ['no-appendfsync-on-rewrite', 'no'],
    ['auto-aof-rewrite-min-size', '1073741824'],
    ['maxmemory-policy', 'noeviction'],
    ['maxmemory', '100000000'],
    ['bind', '127.0.0.1'],
    ['save', ''],
  ])('runs with %s %s', async (name, value) => {
    expect(await send(auth(), `CONFIG GET ${name}`)).toContain(`${name}\r\n$${value.length}\r\n${value}\r\n`);
  });

  it('refuses who has no password', async () => {
    expect(await send('SET a 1')).toContain('-NOAUTH');
    expect(await pingRedis(redis.port, 'wrong')).toBe(false);
  });

  it('keeps what it answered before kill -9, on the same directory and port', async () => {
    expect(await send(auth(), 'SET kept 42')).toContain('+OK\r\n+OK');
    const exited = once(redis.child, 'exit');
    redis.child.kill('SIGKILL');
    await exited;
    redis = await spawnRedis({ dataDir, port: redis.port, password: new URL(redis.url).password });
    expect(await send(auth(), 'GET kept')).toContain('$2\r\n42\r\n');
  });

  it('says why when the server cannot start', async () => {
    const other = await mkdtemp(join(tmpdir(), 'logpond-redis-'));
    await expect(spawnRedis({ dataDir: other, port: redis.port })).rejects.toThrow(
      /redis-server ended at once .*in use/s,
    );
    await rm(other, { recursive: true });
  });
});
