import { renderCondition } from './alert-conditions.ts';
import type { Matched } from './alert-conditions.ts';
import type { JudgedStores } from './judge.ts';

const OFFSET_MASK = 2n ** 48n - 1n;
const FUTURE_S_MAX = 60;
const BUCKETS_PER_WINDOW = 300;
const UNIT_S: Record<string, number> = { s: 1, m: 60, h: 3_600, d: 86_400 };

/** A rule as far as the judge needs it. */
export type JudgedRule = {
  id: string;
  projectId: string;
  condition: Matched & { threshold: number; timeWindow: string };
  service?: string | null | undefined;
};

/**
 * While a rule counted with the same window: entries of the project behind offset `after` and not behind `upTo`
 * (null: it counts still).
 */
export type Spell = { rule: JudgedRule; after: number; upTo: number | null };

/** Times in whole seconds since 1970; each resolves in the end, as nothing more comes. */
export type Crossing = { startedAtS: number; resolvedAtS: number; peak: number };

export type Recomputed = {
  crossings: Crossing[];
  /** Entries that were counted at all. */
  counted: number;
};

type Counts = { received: number; bucket: number; entries: number };

/**
 * Recomputes a rule's crossings from ClickHouse, from the definition and not from the product's code: SQL sorts the
 * entries of each request into buckets of (arrival, time), and a loop over these in the order of the stream keeps the
 * sum.
 */
export async function recomputeCrossings(
  { selectRows }: Pick<JudgedStores, 'selectRows'>,
  spell: Spell,
): Promise<Recomputed> {
  const { rule } = spell;
  const windowS = readSeconds(rule.condition.timeWindow);
  const bucketS = chooseBucket(windowS);
  const span = Math.ceil(windowS / bucketS) + 1;
  const condition = renderCondition(rule.condition, rule.service);
  const rows = await selectRows<Record<'received_text' | 'bucket_text' | 'entries', string>>(
    `SELECT toString(intDiv(arrived, {bucketS:UInt32}) AS received) AS received_text,
       toString(least(intDiv(second, {bucketS:UInt32}), received) AS bucket) AS bucket_text,
       toString(count()) AS entries
     FROM (
       SELECT seq, received_at, intDiv(toUnixTimestamp64Milli(received_at), 1000) AS arrived,
         intDiv(toUnixTimestamp64Nano(time), 1000000000) AS second
       FROM logs
       WHERE project_id = {project:UUID} AND bitAnd(seq, {mask:UInt64}) > {after:UInt64}
         AND bitAnd(seq, {mask:UInt64}) <= {upTo:UInt64} AND (${condition.sql})
     )
     WHERE second <= arrived + {futureS:UInt32} AND bucket > received - {span:UInt32}
     GROUP BY received, bucket, received_at ORDER BY min(seq)`,
    {
      ...condition.params,
      project: rule.projectId,
      mask: OFFSET_MASK.toString(),
      after: spell.after,
      upTo: (spell.upTo ?? OFFSET_MASK).toString(),
      bucketS,
      span,
      futureS: FUTURE_S_MAX,
    },
  );
  const counts = rows.map(({ received_text: received, bucket_text: bucket, entries }) => ({
    received: Number(received),
    bucket: Number(bucket),
    entries: Number(entries),
  }));
  return replay(counts, { span, bucketS, threshold: rule.condition.threshold });
}

type Definition = { span: number; bucketS: number; threshold: number };

function replay(counts: readonly Counts[], { span, bucketS, threshold }: Definition): Recomputed {
  const buckets = new Map<number, number>();
  const crossings: Crossing[] = [];
  let open: Omit<Crossing, 'resolvedAtS'> | undefined;
  let clock = -Infinity;
  let counted = 0;
  const sumAt = (end: number): number => {
    let sum = 0;
    for (const [bucket, entries] of buckets) if (bucket > end - span && bucket <= end) sum += entries;
    return sum;
  };
  /** Ends the buckets from the clock's to the one before `to`; the sums of later ones are no greater. */
  const pass = (to: number): void => {
    for (let end = clock; end < to && open !== undefined; end += 1) {
      if (sumAt(end) >= threshold) continue;
      crossings.push({ ...open, resolvedAtS: (end + 1) * bucketS });
      open = undefined;
    }
    clock = Math.max(clock, to);
  };
  for (const { received, bucket, entries } of counts) {
    pass(received);
    buckets.set(bucket, (buckets.get(bucket) ?? 0) + entries);
    counted += entries;
    const sum = sumAt(clock);
    if (open !== undefined) open.peak = Math.max(open.peak, sum);
    else if (sum >= threshold) open = { startedAtS: clock * bucketS, peak: sum };
    for (const old of buckets.keys()) if (old <= clock - span) buckets.delete(old);
  }
  pass(clock + span + 1);
  return { crossings, counted };
}

function readSeconds(duration: string): number {
  const seconds = Number(duration.slice(0, -1)) * (UNIT_S[duration.slice(-1)] ?? Number.NaN);
  if (!(seconds > 0)) throw new RangeError(`expected a duration such as 90s, got ${duration}`);
  return seconds;
}

/** The least width, at least a 300th of the window and a second, that divides a day, an hour or a minute. */
function chooseBucket(windowS: number): number {
  for (let width = Math.max(1, Math.ceil(windowS / BUCKETS_PER_WINDOW)); ; width += 1) {
    if (86_400 % width === 0) return width;
  }
}
