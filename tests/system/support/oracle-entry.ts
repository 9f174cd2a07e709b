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

/** How the entries of a run are made. */
export type EntryShape = {
  /** Letters in each message that no compression shortens by more than a quarter. */
  noiseBytes: number;
  /** The rows of a request lie on so many days, back from its time; 1: all at its time. */
  spreadDays: number;
};

const DAY_MS = 86_400_000;

/** The one entry of this name: everything in it follows from the name, so that the judge can make it again. */
export function renderEntry(name: EntryName, timeMs: number, shape: EntryShape): OracleEntry {
  const id = `${name.run}.${name.request}.${name.row}`;
  const noise = createHash('sha256').update(id).digest();
  const first = noise[0] ?? 0;
  const filler = noise.toString('base64').repeat(1 + (first % 4));
  return {
    time: new Date(timeMs + name.row - (name.row % shape.spreadDays) * DAY_MS).toISOString(),
    service: `service-${first % 5}`,
    level: LEVELS[(noise[1] ?? 0) % LEVELS.length] ?? 'info',
    message: `entry ${id} – ${filler} "\\ \u0000 ж 🐸${renderNoise(id, shape.noiseBytes)}`,
    metadata: {
      id,
      request: name.request,
      nested: { row: name.row, list: [first, null, true, 1.5] },
      'a.b': filler,
    },
  };
}

function renderNoise(id: string, bytes: number): string {
  if (bytes === 0) return '';
  const outputLength = Math.ceil((bytes * 3) / 4);
  return createHash('shake256', { outputLength }).update(id).digest('base64').slice(0, bytes);
}

/** The name in an entry's metadata, or undefined when no oracle made it. */
export function readEntryName(metadata: unknown): EntryName | undefined {
  if (typeof metadata !== 'object' || metadata === null || !('id' in metadata)) return undefined;
  const match = /^(.+)\.(\d+)\.(\d+)$/.exec(String(metadata.id));
  if (match === null) return undefined;
  return { run: match[1] ?? '', request: Number(match[2]), row: Number(match[3]) };
}
