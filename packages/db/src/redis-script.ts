import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { mapRedisError } from './connect.ts';

type Argument = string | number | Buffer;

/** A Lua script kept in a file beside the code; sent by its hash, and whole when the server does not know it. */
export class RedisScript {
  readonly #source: string;
  readonly #sha: string;

  /** @param path of the file, below `packages/db/src`. */
  constructor(path: string) {
    this.#source = readFileSync(join(import.meta.dirname, path), 'utf8');
    this.#sha = createHash('sha1').update(this.#source).digest('hex');
  }

  /** Runs the script; strings come back as strings, Lua numbers as numbers, false as null. */
  async run(client: Redis, keys: readonly string[], args: readonly Argument[]): Promise<unknown> {
    try {
      return await client.evalsha(this.#sha, keys.length, ...keys, ...args);
    } catch (error) {
      if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw mapRedisError(error);
    }
    try {
      return await client.eval(this.#source, keys.length, ...keys, ...args);
    } catch (error) {
      throw mapRedisError(error);
    }
  }
}
