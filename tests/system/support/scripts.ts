import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Redis } from 'ioredis';

/**
 * The hash by which the product sends one of its scripts to Redis; it is made known there, as after the first use.
 *
 * @param name of a file in packages/db/src/log-stream.lua, such as `admit`.
 */
export async function loadScript(redis: Redis, name: string): Promise<string> {
  const file = fileURLToPath(import.meta.resolve('@logpond/db/log-stream')).replace(
    /\.ts$/,
    `.lua/${name}.lua`,
  );
  const source = readFileSync(file, 'utf8');
  await redis.script('LOAD', source);
  return createHash('sha1').update(source).digest('hex');
}
