import { createHash } from 'node:crypto';
import { createRandom, pickInteger } from '../system/support/random.ts';
import type { Random } from '../system/support/random.ts';

const SERVICES = ['checkout', 'gateway', 'inventory', 'mailer', 'payments', 'search', 'sessions', 'web'];
const LEVELS = ['info', 'info', 'info', 'info', 'info', 'debug', 'debug', 'warn', 'warn', 'error'] as const;
const VERBS = [
  'accepted',
  'cached',
  'closed',
  'fetched',
  'opened',
  'rejected',
  'retried',
  'stored',
  'timed out',
];
const NOUNS = ['basket', 'connection', 'customer', 'invoice', 'order', 'parcel', 'query', 'session', 'token'];
const HOSTS = ['eu-1a', 'eu-1b', 'eu-2a', 'us-1a', 'us-1b'];
/** The newest of the corpus' times lies this long before the run, the oldest an hour and a half. */
const NEWEST_BEFORE_MS = 1_800_000;
const SPAN_MS = 3_600_000;

export type CorpusEntry = {
  /** Before the run's start, in ms. */
  beforeMs: number;
  service: string;
  level: string;
  message: string;
  metadata: Record<string, unknown>;
  trace_id?: string;
};

/** The same entries in the two forms that are compared: bodies for the API, rows for the engine. */
export type Corpus = {
  /** `{"logs":[…]}`, `batchEntries` each. */
  bodies: Buffer[];
  /** JSONEachRow of each body, with every column of the table. */
  rows: Buffer[];
  entryBytesMean: number;
  /** Over the entries without the moment of the run: the same for the same seed. */
  checksum: string;
};

/** Entries of about 337 bytes of JSON, repeated exactly by the seed. */
export function createEntries(seed: number, count: number): CorpusEntry[] {
  const random = createRandom(seed);
  return Array.from({ length: count }, () => createEntry(random));
}

/** `bodyCount` different batches whose times lie between 30 and 90 minutes before `nowMs`. */
export function createCorpus(options: {
  seed: number;
  bodyCount: number;
  batchEntries: number;
  projectId: string;
  nowMs: number;
}): Corpus {
  const entries = createEntries(options.seed, options.bodyCount * options.batchEntries);
  const bodies: Buffer[] = [];
  const rows: Buffer[] = [];
  for (let from = 0; from < entries.length; from += options.batchEntries) {
    const batch = entries.slice(from, from + options.batchEntries);
    const logs = batch.map(({ beforeMs, ...rest }) => ({ time: timeOf(beforeMs, options.nowMs), ...rest }));
    bodies.push(Buffer.from(JSON.stringify({ logs })));
    rows.push(Buffer.from(batch.map((entry) => renderRow(entry, options)).join('')));
  }
  const bodyBytes = bodies.reduce((sum, body) => sum + body.length, 0);
  return {
    bodies,
    rows,
    entryBytesMean: bodyBytes / entries.length,
    checksum: createHash('sha256').update(JSON.stringify(entries)).digest('hex'),
  };
}

function createEntry(random: Random): CorpusEntry {
  const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)] as T;
  const noun = pick(NOUNS);
  const number = pickInteger(random, 1, 99_999_999);
  const took = pickInteger(random, 1, 2_500);
  return {
    beforeMs: NEWEST_BEFORE_MS + Math.floor(random() * SPAN_MS),
    service: pick(SERVICES),
    level: pick(LEVELS),
    message: `${noun} ${number} ${pick(VERBS)} by ${pick(NOUNS)} ${pickInteger(random, 1, 9_999)} in ${took} ms`,
    metadata: {
      host: `${pick(HOSTS)}-${pickInteger(random, 1, 40)}`,
      path: `/api/v2/${noun}/${number}`,
      status: pick([200, 200, 200, 201, 304, 404, 500]),
      took_ms: took,
      user: createHex(random, 12),
      request: createHex(random, 26),
    },
    trace_id: createUuid(random),
  };
}

function createHex(random: Random, digits: number): string {
  return Array.from({ length: digits }, () => Math.floor(random() * 16).toString(16)).join('');
}

function createUuid(random: Random): string {
  const hex = createHex(random, 32);
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

function timeOf(beforeMs: number, nowMs: number): string {
  return new Date(nowMs - beforeMs).toISOString();
}

/** A row as a program would write it that feeds the table itself; `seq` and `shard` are the store's own ids. */
function renderRow(entry: CorpusEntry, { projectId, nowMs }: { projectId: string; nowMs: number }): string {
  const toSql = (time: string): string => time.replace('T', ' ').replace('Z', '');
  return `${JSON.stringify({
    project_id: projectId,
    retention_days: 30,
    time: toSql(timeOf(entry.beforeMs, nowMs)),
    seq: entry.beforeMs,
    shard: 0,
    received_at: toSql(new Date(nowMs).toISOString()),
    level: entry.level,
    service: entry.service,
    message: entry.message,
    metadata: JSON.stringify(entry.metadata),
    trace_key: entry.trace_id ?? '00000000-0000-0000-0000-000000000000',
    trace_form: entry.trace_id === undefined ? 'none' : 'uuid',
    trace_text: '',
    span_id: '',
    session_id: '',
  })}\n`;
}
