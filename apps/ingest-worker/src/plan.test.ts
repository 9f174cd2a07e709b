import { BlockEncoder } from '@logpond/log-block/encode';
import { readBlockHeader } from '@logpond/log-block/decode';
import { expect, it } from 'vitest';
import { planRange } from './plan.ts';

const RECEIVED_MS = 1_790_000_000_000;
const DAY_MS = 86_400_000;
const PROJECT = '0190a5e0-0000-7000-8000-000000000001';

/** A range of one block with one entry. */
function makeRange(receivedAtMs: number): Parameters<typeof planRange>[0] {
  const encoder = new BlockEncoder();
  encoder.beginRun(PROJECT, receivedAtMs);
  const timeNs = BigInt(receivedAtMs) * 1_000_000n;
  encoder.appendEntry({ timeNs, level: 2, service: 'web', message: 'm', metadataJson: '{}' });
  encoder.endRun(100);
  const { block, digest } = encoder.finish(receivedAtMs);
  const { rows, rawBytes, runs } = readBlockHeader(block);
  const streamBlock = { firstOffset: 1, rows, rawBytes, runs, block, digest };
  return { from: 1, to: 2, rows, rawBytes, bytes: block.length, blocks: [streamBlock], shares: new Map() };
}

it('F34: a clock more than a day beyond the newest entry of a plan does not decide what is expired', async () => {
  const atMs = async (nowMs: number): Promise<number> =>
    (await planRange(makeRange(RECEIVED_MS), async () => 1, nowMs)).atMs;
  expect(await atMs(RECEIVED_MS + 1_000)).toBe(RECEIVED_MS + 1_000);
  expect(await atMs(RECEIVED_MS + DAY_MS)).toBe(RECEIVED_MS + DAY_MS);
  expect(await atMs(RECEIVED_MS + DAY_MS + 1)).toBe(RECEIVED_MS);
  expect(await atMs(RECEIVED_MS - DAY_MS)).toBe(RECEIVED_MS - DAY_MS);
});
