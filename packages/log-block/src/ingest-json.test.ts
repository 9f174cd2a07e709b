import type { CheckedEntry } from '@logpond/schema/log-entry';
import { expect, it } from 'vitest';
import { decodeBlock } from './decode.ts';
import type { BlockEntry } from './decode.ts';
import { BlockEncoder } from './encode.ts';
import { renderIngestJson } from './ingest-json.ts';
import { readBatch } from './read-batch.ts';

const NOW_MS = Date.UTC(2026, 0, 31, 12);
const PROJECT = '01890000-aaaa-7bbb-8ccc-0123456789ab';
const BARE: CheckedEntry = {
  timeNs: BigInt(NOW_MS) * 1_000_000n - 123_456_789n,
  level: 2,
  service: 'api',
  message: 'hello',
  metadataJson: '{}',
};

function entriesOf(encoder: BlockEncoder): BlockEntry[] {
  return [...decodeBlock(encoder.finish(NOW_MS).block).entries()];
}

it('an entry that is sent again as it is rendered is the same entry', () => {
  const encoder = new BlockEncoder();
  encoder.beginRun(PROJECT, NOW_MS);
  const entries: CheckedEntry[] = [
    BARE,
    { ...BARE, message: 'ß 𝄞 \0 "quoted" \\ \n\u2028', service: 'größe', level: 5 },
    {
      ...BARE,
      metadataJson: '{"n":12345678901234567890123,"__proto__":{"a":null},"message":"inner","":[1.5]}',
    },
    { ...BARE, traceId: '0af76519-16cd-43dd-8448-eb211c80319c', spanId: 'b7ad6b71', sessionId: 's 1' },
    { ...BARE, traceId: '0AF7651916CD43DD8448EB211C80319C' },
  ];
  for (const entry of entries) encoder.appendEntry(entry);
  encoder.endRun(100);
  const stored = entriesOf(encoder);

  const again = new BlockEncoder();
  const body = Buffer.from(stored.map((entry) => renderIngestJson(entry)).join('\n'));
  const options = {
    projectId: PROJECT,
    nowMs: NOW_MS,
    retentionMs: 86_400_000,
    batchMax: 1_000,
    strict: true,
  };
  readBatch(body, { ...options, format: 'ndjson' }, again);
  expect(entriesOf(again)).toEqual(stored);
});
