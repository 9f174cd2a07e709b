import { replayWindow, SlidingWindow } from '@logpond/alerting/window';
import type { WindowSpec } from '@logpond/alerting/window';
import { PREVIEW_POINTS_MAX } from '@logpond/schema/alert-preview';
import type { AlertPreview } from '@logpond/schema/alert-preview';

/** Matching entries of one bucket of time, received in another; starts of the buckets in seconds since 1970. */
export type BucketCount = { second: number; receivedSecond: number; count: number };

/** How long before a range entries may have been received that its first window holds. */
export function leadSeconds({ bucketS, span }: WindowSpec): number {
  return span * bucketS;
}

/** In seconds since 1970: from the start of a bucket of the window, up to and not including `toS`. */
export type PreviewRange = { fromS: number; toS: number };

const DAY_S = 86_400;
const MINUTE_S = 60;
const HOUR_S = 3_600;

const NICE_COUNTS = [1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30];
const NICE_COUNTS_OF_HOURS = [1, 2, 3, 4, 6, 8, 12, 24];
/** Widths of a point that a chart shows well: they divide a minute, an hour or a day. */
const NICE_WIDTHS_S = [
  ...NICE_COUNTS,
  ...NICE_COUNTS.map((minutes) => minutes * MINUTE_S),
  ...NICE_COUNTS_OF_HOURS.map((hours) => hours * HOUR_S),
];

/**
 * What a rule would have done in a range; `counts` are ordered by the bucket they were received in and begin a whole
 * window before it (`leadSeconds`).
 */
export function previewRule(
  spec: WindowSpec,
  counts: readonly BucketCount[],
  range: PreviewRange,
): AlertPreview {
  const { firings, maxCount } = replayWindow(spec, counts, { fromS: range.fromS, untilS: range.toS });
  const firingsMax = Math.max(1, Math.ceil((range.toS - range.fromS) / DAY_S));
  return {
    firings: firings.map(({ startedAtS, resolvedAtS, peak }) => ({
      startedAt: renderTime(startedAtS),
      resolvedAt: resolvedAtS === null ? null : renderTime(resolvedAtS),
      peak,
    })),
    maxCount,
    series: sumSeries(counts, range, spec.bucketS),
    quieterThreshold:
      firings.length <= firingsMax
        ? null
        : findQuieterThreshold(spec, counts, { firingsMax, fromS: range.fromS }),
  };
}

/** Counts by time of the entries, with every bucket of the range; entries of other times are left out. */
function sumSeries(
  counts: readonly BucketCount[],
  { fromS, toS }: PreviewRange,
  bucketS: number,
): AlertPreview['series'] {
  const widthS = chooseWidth(toS - fromS, bucketS);
  const first = Math.floor(fromS / widthS);
  const sums = Array.from({ length: Math.max(0, Math.ceil(toS / widthS) - first) }, () => 0);
  for (const { second, count } of counts) {
    const index = Math.floor(second / widthS) - first;
    if (sums[index] !== undefined) sums[index] += count;
  }
  return sums.map((count, index) => ({ bucket: renderTime((first + index) * widthS), count }));
}

/** The least nice width that buckets of the window fit into, and with which the range has at most 500 points. */
function chooseWidth(rangeS: number, bucketS: number): number {
  // A range that does not begin with a point touches one more.
  const leastS = rangeS / (PREVIEW_POINTS_MAX - 1);
  const nice = NICE_WIDTHS_S.find((width) => width >= leastS && width % bucketS === 0);
  return nice ?? Math.ceil(leastS / bucketS) * bucketS;
}

/**
 * The least threshold above the rule's own with which it would have begun to fire at most `firingsMax` times since `fromS`.
 *
 * A rule begins to fire in a bucket in which its sum comes to the threshold from below it at the end of the bucket
 * before. So how often it fires at any threshold is how many of these rises contain it; more need not mean fewer.
 */
export function findQuieterThreshold(
  spec: WindowSpec,
  counts: Iterable<BucketCount>,
  { firingsMax, fromS = -Infinity }: { firingsMax: number; fromS?: number },
): number {
  const rises = listRises(spec, counts, fromS);
  const begins = rises.map(({ below }) => below).toSorted((a, b) => a - b);
  const ends = rises.map(({ reached }) => reached).toSorted((a, b) => a - b);
  let [begun, ended] = [0, 0];
  for (const candidate of [spec.threshold + 1, ...ends.map((end) => end + 1)]) {
    if (candidate <= spec.threshold) continue;
    while ((begins[begun] ?? Infinity) < candidate) begun += 1;
    while ((ends[ended] ?? Infinity) < candidate) ended += 1;
    if (begun - ended <= firingsMax) return candidate;
  }
  // Above the greatest sum of all it never fires.
  return Math.max(spec.threshold, ends.at(-1) ?? 0) + 1;
}

/** For each bucket in which entries were received: the sum at the end of the bucket before, and at its own end. */
function listRises(
  spec: WindowSpec,
  counts: Iterable<BucketCount>,
  fromS: number,
): { below: number; reached: number }[] {
  // With this threshold it fires while it holds anything, so its clock goes on with `tick`.
  const window = new SlidingWindow({ ...spec, threshold: 1 });
  const rises: { below: number; reached: number; receivedSecond: number }[] = [];
  let bucket: number | undefined;
  for (const item of counts) {
    const received = Math.floor(item.receivedSecond / spec.bucketS);
    if (received !== bucket) {
      bucket = received;
      window.tick((received - 1) * spec.bucketS);
      rises.push({ below: window.sum, reached: window.sum, receivedSecond: item.receivedSecond });
    }
    window.count(item);
    const rise = rises.at(-1);
    if (rise !== undefined) rise.reached = Math.max(rise.below, window.sum);
  }
  return rises.filter(({ receivedSecond }) => receivedSecond >= fromS);
}

function renderTime(second: number): string {
  return new Date(second * 1_000).toISOString();
}
