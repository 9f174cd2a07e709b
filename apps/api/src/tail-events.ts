import type { BlockEntry, DecodedBlock } from '@logpond/log-block/decode';
import { encodeEntryId } from '@logpond/log-block/entry-id';
import type { EntryIdentity } from '@logpond/log-block/entry-id';
import { renderEntryJson } from '@logpond/log-block/entry-json';
import type { EntryPredicate } from './entry-filter.ts';
import type { TailChunk } from './tail-client.ts';

/** Which entries of a block are wanted, and what their ids are made of. */
export type EventScope = {
  epoch: number;
  shard: number;
  /** Offset of the block's first entry. */
  firstOffset: number;
  projectId: string;
  /** Whether the entries carry their project. */
  withProjectId: boolean;
  /** Entries below it were sent before. */
  fromOffset: number;
};

const encoder = new TextEncoder();

/** Renders a block's entries of one project as Server-Sent Events. Undefined when none is wanted. */
export function encodeEvents(
  block: DecodedBlock,
  scope: EventScope,
  predicate: EntryPredicate,
): TailChunk | undefined {
  let text = '';
  let entries = 0;
  let firstTimeNs = 0n;
  let lastTimeNs = 0n;
  for (const [runIndex, run] of block.runs.entries()) {
    if (run.projectId !== scope.projectId) continue;
    for (const entry of block.entries(runIndex)) {
      const offset = scope.firstOffset + entry.row;
      if (offset < scope.fromOffset || !predicate(entry)) continue;
      const projectId = scope.withProjectId ? scope.projectId : undefined;
      text += renderEvent(entry, { epoch: scope.epoch, shard: scope.shard, offset }, projectId);
      if (entries === 0) firstTimeNs = entry.timeNs;
      lastTimeNs = entry.timeNs;
      entries += 1;
    }
  }
  return entries === 0 ? undefined : { bytes: encoder.encode(text), entries, firstTimeNs, lastTimeNs };
}

function renderEvent(entry: BlockEntry, identity: EntryIdentity, projectId?: string): string {
  const id = encodeEntryId(entry.timeNs, identity);
  return `event: log\nid: ${id}\ndata: ${renderEntryJson({ ...entry, id, projectId })}\n\n`;
}
