import { createHash } from 'node:crypto';
import { LEVELS } from '@logpond/schema/log-entry';

/** Which entry of which request of which run. */
export type EntryName = { run: string; request: number; row: number };

/** The parts of an entry that must come back as they were sent. */
export type OracleEntry = {
  time: string;
  service: string;
  level: string;
  message: string;
  metadata: Record<string, unknown>;
};

/** The one entry of this name: everything in it follows from the name, so that the judge can make it again. */
export function renderEntry(name: EntryName, timeMs: number): OracleEntry {
  const id = `${name.run}.${name.request}.${name.row}`;
  const noise = createHash('sha256').update(id).digest();
  const first = noise[0] ?? 0;
  const filler = noise.toString('base64').repeat(1 + (first % 4));
  return {
    time: new Date(timeMs + name.row).toISOString(),
    service: `service-${first % 5}`,
    level: LEVELS[(noise[1] ?? 0) % LEVELS.length] ?? 'info',
    message: `entry ${id} – ${filler} "\\ \u0000 ж 🐸`,
    metadata: {
      id,
      request: name.request,
      nested: { row: name.row, list: [first, null, true, 1.5] },
      'a.b': filler,
    },
  };
}

/** The name in an entry's metadata, or undefined when no oracle made it. */
export function readEntryName(metadata: unknown): EntryName | undefined {
  if (typeof metadata !== 'object' || metadata === null || !('id' in metadata)) return undefined;
  const match = /^(.+)\.(\d+)\.(\d+)$/.exec(String(metadata.id));
  if (match === null) return undefined;
  return { run: match[1] ?? '', request: Number(match[2]), row: Number(match[3]) };
}
