import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { TailHub } from '@logpond/api/tail-hub';
import { connectRedis } from '@logpond/db/connect';
import { LogStream } from '@logpond/db/log-stream';
import { prepareShards } from '@logpond/db/prepare';
import { BlockEncoder } from '@logpond/log-block/encode';
import type { EncodedBlock } from '@logpond/log-block/encode';
import { createLog } from '@logpond/runtime/log';
import { spawnRedis } from '@logpond/standalone/redis';
import { expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { EVERYTHING } from './log-store-fixture.ts';

const BUSY = '0190a5e0-0000-7000-8000-000000000001';
const QUIET = '0190a5e0-0000-7000-8000-000000000002';

function makeBlock(projectId: string, message: string): EncodedBlock {
  const encoder = new BlockEncoder();
  const nowMs = Date.now();
  encoder.beginRun(projectId, nowMs);
  const entry = { timeNs: BigInt(nowMs) * 1_000_000n, level: 2, service: 'web', message, metadataJson: '{}' };
  encoder.appendEntry(entry);
  encoder.endRun(100);
  return encoder.finish(nowMs);
}

/** Collects the messages of a stream's entries, until it ends. */
function readMessages(events: ReadableStream<Uint8Array>): string[] {
  const messages: string[] = [];
  const read = async (): Promise<void> => {
    for await (const bytes of events) {
      for (const [, message = ''] of Buffer.from(bytes)
        .toString()
        .matchAll(/"message":"([^"]*)"/g))
        messages.push(message);
    }
  };
  void read();
  return messages;
}

it('a reader is not given what came before it when the tail of its shard catches up from further back', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'logpond-hub-'));
  const server = await spawnRedis({ dataDir });
  try {
    const settings = { REDIS_URL: server.url, KEY_PREFIX: 'lp', SHARDS: 1, REDIS_BUDGET_BYTES: 16_777_216 };
    await using redis = await connectRedis(settings);
    await prepareShards(redis, async () => new Map());
    const stream = await LogStream.open(redis);
    await using hub = new TailHub({ redis, log: createLog('test', 'silent') });
    const open = async (projectId: string): Promise<string[]> => {
      const { signal } = new AbortController();
      const request = { projectId, filter: EVERYTHING, withProjectId: false, signal };
      return readMessages(await hub.open(request));
    };
    const busy = await open(BUSY);
    await stream.admit(0, makeBlock(BUSY, 'busy 1'));
    await waitFor('the busy entry', () => busy.length === 1);
    // Nobody tails this project yet, so its block is not published, and the tail's place stays before it.
    await stream.admit(0, makeBlock(QUIET, 'before'));
    const quiet = await open(QUIET);
    await redis.client.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await stream.admit(0, makeBlock(QUIET, 'after'));
    await stream.admit(0, makeBlock(BUSY, 'busy 2'));
    await waitFor('what came meanwhile', () => quiet.length > 0 && busy.length === 2);
    expect(busy).toEqual(['busy 1', 'busy 2']);
    expect(quiet).toEqual(['after']);
  } finally {
    await server.stop();
    await rm(dataDir, { recursive: true, force: true });
  }
});
