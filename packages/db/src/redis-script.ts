import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { mapRedisError } from './connect.ts';
import type { RedisClient } from './connect.ts';
import { StoreError } from './store-error.ts';

type Argument = string | number | Buffer;
type Answer = [error: Error | null, value: unknown];

/** Below the command timeout of 2 s, so that a short WAIT is told from a lost connection. */
const WAIT_MS = 1_500;
const PROBE_WAIT_MS = 10;
const MOVES_MAX = 3;
const MOVE_PAUSE_MS = 50;

/**
 * Shards (by hash tag) whose last write was not confirmed by enough replicas. Blocks are not sent to them until a
 * few bytes have shown that the replicas are back: they would pile up in this process's memory behind WAITs that
 * run one after another. At most one entry a hash tag.
 */
const unconfirmed = new WeakMap<RedisClient, Set<string>>();

/** A Lua script kept in a file beside the code; sent by its hash, and whole when the server does not know it. */
export class RedisScript {
  readonly #source: string;
  readonly #sha: string;

  /** @param path of the file, below `packages/db/src`. */
  constructor(path: string) {
    this.#source = readFileSync(join(import.meta.dirname, path), 'utf8');
    this.#sha = createHash('sha1').update(this.#source).digest('hex');
  }

  /**
   * Runs the script; strings come back as strings, Lua numbers as numbers, false as null.
   *
   * @throws {StoreError} `unavailable`: whether it ran is unknown.
   */
  async run(client: RedisClient, keys: readonly string[], args: readonly Argument[]): Promise<unknown> {
    try {
      return await client.evalsha(this.#sha, keys.length, ...keys, ...args);
    } catch (error) {
      if (!isNoScript(error)) throw mapRedisError(error);
    }
    try {
      return await client.eval(this.#source, keys.length, ...keys, ...args);
    } catch (error) {
      throw mapRedisError(error);
    }
  }

  /**
   * Runs the script and waits until `replicas` replicas hold what it wrote, and what this connection wrote before.
   * Both go out together: WAIT speaks of the connection that wrote.
   *
   * @throws {StoreError} `unavailable`: it ran, ran on too few machines, or did not run.
   */
  async runReplicated(
    client: RedisClient,
    keys: readonly string[],
    args: readonly Argument[],
    replicas: number,
  ): Promise<unknown> {
    if (replicas === 0) return this.run(client, keys, args);
    const tag = /\{(.*?)\}/.exec(keys[0] ?? '')?.[1] ?? '';
    const doubtful = unconfirmed.get(client) ?? new Set();
    unconfirmed.set(client, doubtful);
    if (doubtful.has(tag)) await probe(client, keys[0] ?? '', replicas);
    try {
      const answer = await this.#runAndWait(client, keys, args, replicas);
      doubtful.delete(tag);
      return answer;
    } catch (error) {
      doubtful.add(tag);
      throw error;
    }
  }

  async #runAndWait(
    client: RedisClient,
    keys: readonly string[],
    args: readonly Argument[],
    replicas: number,
  ): Promise<unknown> {
    let isWhole = false;
    for (let moves = 0; ;) {
      const pipeline = client.pipeline();
      if (isWhole) pipeline.eval(this.#source, keys.length, ...keys, ...args);
      else pipeline.evalsha(this.#sha, keys.length, ...keys, ...args);
      const [script, wait] = await send(pipeline.wait(replicas, WAIT_MS));
      // Refused before it ran: it may be sent again.
      if (isNoScript(script[0]) && !isWhole) {
        isWhole = true;
      } else if (script[0]?.message.startsWith('MOVED') === true && moves < MOVES_MAX) {
        moves += 1;
        await followMove(client, keys[0] ?? '');
      } else {
        if (script[0] !== null) throw mapRedisError(script[0]);
        assertHeld(wait, replicas);
        return script[1];
      }
    }
  }
}

/** Asks with a few bytes whether the replicas hold what this connection wrote last. */
async function probe(client: RedisClient, key: string, replicas: number): Promise<void> {
  const [read, wait] = await send(client.pipeline().exists(key).wait(replicas, PROBE_WAIT_MS));
  // A slot that moved is found again by the write itself.
  if (read[0]?.message.startsWith('MOVED') === true) return;
  if (read[0] !== null) throw mapRedisError(read[0]);
  assertHeld(wait, replicas);
}

async function send(pipeline: { exec: () => Promise<Answer[] | null> }): Promise<[Answer, Answer]> {
  let answers: Answer[] | null;
  try {
    answers = await pipeline.exec();
  } catch (error) {
    throw mapRedisError(error);
  }
  const [first, second] = answers ?? [];
  if (first === undefined || second === undefined)
    throw new StoreError('redis', 'unavailable', 'expected two answers of Redis, got fewer');
  return [first, second];
}

function assertHeld([error, held]: Answer, replicas: number): void {
  if (error === null && Number(held) >= replicas) return;
  const got = error === null ? `${Number(held)}` : error.message;
  throw new StoreError(
    'redis',
    'unavailable',
    `expected ${replicas} replicas to hold the write within ${WAIT_MS} ms, got ${got}`,
  );
}

/** Single commands follow a slot that moved and take the client's table along; a pipeline does not. */
async function followMove(client: RedisClient, key: string): Promise<void> {
  try {
    await client.exists(key);
  } catch (error) {
    throw mapRedisError(error);
  }
  await delay(MOVE_PAUSE_MS);
}

function isNoScript(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('NOSCRIPT');
}
