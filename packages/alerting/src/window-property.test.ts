import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FUTURE_MAX_S, replayWindow, SlidingWindow } from './window.ts';
import type { CountItem, Transition, WindowSpec } from './window.ts';

type Firing = { startedAtS: number; resolvedAtS: number | null; peak: number };

/** The definition once more, from the raw list: every sum of every bucket is computed anew. */
function findFirings(spec: WindowSpec, items: readonly CountItem[], untilS: number): Firing[] {
  const bucketOf = (second: number): number => Math.floor(second / spec.bucketS);
  const placed = items.flatMap(({ second, receivedSecond, count }) => {
    const received = bucketOf(receivedSecond);
    const bucket = Math.min(bucketOf(second), received);
    const isCounted = second <= receivedSecond + FUTURE_MAX_S && bucket >= received - spec.span + 1;
    return isCounted ? [{ received, bucket, count }] : [];
  });
  const firings: Firing[] = [];
  let firing: Firing | undefined;
  const first = Math.min(...placed.map(({ received }) => received));
  const last = Math.max(bucketOf(untilS), ...placed.map(({ received }) => received));
  for (let k = first; k <= last; k += 1) {
    const sum = placed
      .filter(({ received, bucket }) => received <= k && bucket <= k && bucket > k - spec.span)
      .reduce((total, { count }) => total + count, 0);
    if (firing === undefined && sum >= spec.threshold) {
      firing = { startedAtS: k * spec.bucketS, resolvedAtS: null, peak: 0 };
      firings.push(firing);
    }
    if (firing === undefined) continue;
    firing.peak = Math.max(firing.peak, sum);
    if (sum >= spec.threshold || (k === last && (k + 1) * spec.bucketS > untilS)) continue;
    firing.resolvedAtS = (k + 1) * spec.bucketS;
    firing = undefined;
  }
  return firings;
}

/** The firings that a window's transitions tell of. */
function collect(transitions: readonly Transition[]): Omit<Firing, 'peak'>[] {
  const firings: Omit<Firing, 'peak'>[] = [];
  for (const one of transitions) {
    const open = firings.at(-1);
    if (one.kind === 'fired') firings.push({ startedAtS: one.startedAtS, resolvedAtS: null });
    else if (open?.startedAtS === one.startedAtS) open.resolvedAtS = one.resolvedAtS;
    else throw new Error('resolved what never fired');
  }
  return firings;
}

const START_S = 1_760_000_000;
const specs: fc.Arbitrary<WindowSpec> = fc.record({
  threshold: fc.integer({ min: 1, max: 12 }),
  bucketS: fc.constantFrom(1, 2, 12, 60),
  span: fc.integer({ min: 2, max: 7 }),
});
/** Items around the window's length, some too old, some ahead of their reception, with pauses in between. */
const streams = specs.chain((spec) => {
  const reach = spec.bucketS * (spec.span + 2);
  const item = fc.record({
    pauseS: fc.oneof(
      fc.constant(0),
      fc.integer({ min: 0, max: 2 * spec.bucketS }),
      fc.integer({ min: 0, max: 2 * reach }),
    ),
    ageS: fc.oneof(fc.integer({ min: -70, max: reach }), fc.integer({ min: 0, max: spec.bucketS })),
    count: fc.integer({ min: 1, max: 6 }),
  });
  return fc.record({
    spec: fc.constant(spec),
    untilAfterS: fc.integer({ min: 0, max: 2 * reach }),
    items: fc.array(item, { minLength: 1, maxLength: 40 }).map((list) => {
      let receivedSecond = START_S;
      return list.map(({ pauseS, ageS, count }): CountItem => {
        receivedSecond += pauseS;
        return { second: receivedSecond - ageS, receivedSecond, count };
      });
    }),
  });
});
const untilOf = ({ items, untilAfterS }: { items: CountItem[]; untilAfterS: number }): number =>
  (items.at(-1)?.receivedSecond ?? START_S) + untilAfterS;

function store(window: SlidingWindow, fields: Record<string, string>): Record<string, string> {
  const changes = window.takeChanges();
  if (changes === undefined) return fields;
  const rest = Object.entries(fields).filter(([name]) => !changes.unset.includes(name));
  return { ...Object.fromEntries(rest), ...changes.set };
}

describe('a window of any entries', () => {
  it('fires and resolves as sums computed anew for each bucket say', () => {
    let fired = 0;
    let resolved = 0;
    fc.assert(
      fc.property(streams, (stream) => {
        const { spec, items } = stream;
        const expected = findFirings(spec, items, untilOf(stream));
        expect(replayWindow(spec, items, { untilS: untilOf(stream) }).firings).toEqual(expected);
        fired += expected.length;
        resolved += expected.filter(({ resolvedAtS }) => resolvedAtS !== null).length;
      }),
      { numRuns: 3000 },
    );
    expect(fired).toBeGreaterThan(500);
    expect(resolved).toBeGreaterThan(500);
  });

  it('is the same when it is stored and loaded again after any call, and stores few fields', () => {
    fc.assert(
      fc.property(streams, fc.infiniteStream(fc.boolean()), (stream, coin) => {
        const { spec, items } = stream;
        const whole = new SlidingWindow(spec);
        let parted = new SlidingWindow(spec);
        let fields: Record<string, string> = { state: 'of the evaluator' };
        for (const item of items) {
          expect(parted.count(item)).toEqual(whole.count(item));
          if (coin.next().value) {
            fields = store(parted, fields);
            parted = new SlidingWindow(spec, fields);
          }
          expect(Object.keys(fields).length).toBeLessThanOrEqual(spec.span + 5);
          const read = (window: SlidingWindow): unknown[] => [
            window.isFiring,
            window.startedAtS,
            window.sum,
            window.peak,
            window.counted,
            window.isEmpty,
          ];
          expect(read(parted)).toEqual(read(whole));
        }
        expect(parted.tick(untilOf(stream))).toEqual(whole.tick(untilOf(stream)));
        expect(fields['state']).toBe('of the evaluator');
      }),
      { numRuns: 1000 },
    );
  });

  it('gives the same start, end and peak however what was received in one bucket is ordered and split', () => {
    const run = (
      stream: { spec: WindowSpec; items: CountItem[]; untilAfterS: number },
      seed: number,
    ): void => {
      const { spec, items } = stream;
      const random = fc.sample(fc.integer({ min: 0, max: 1000 }), { numRuns: 300, seed });
      const parts = items.flatMap((item) =>
        Array.from({ length: item.count }, (_, index) => ({
          item: { ...item, count: 1 },
          order: random[(item.receivedSecond + index) % 300] ?? 0,
        })),
      );
      const bucketOf = (item: CountItem): number => Math.floor(item.receivedSecond / spec.bucketS);
      const shuffled = parts.toSorted((a, b) => bucketOf(a.item) - bucketOf(b.item) || a.order - b.order);
      const { firings, maxCount } = replayWindow(spec, items, { untilS: untilOf(stream) });
      const singly = shuffled.map(({ item }) => item);
      expect(replayWindow(spec, singly, { untilS: untilOf(stream) })).toEqual({ firings, maxCount });
    };
    fc.assert(fc.property(streams, fc.integer(), run), { numRuns: 1000 });
  });

  it('gives the same firings with ticks at any time that does not pass what is received next', () => {
    fc.assert(
      fc.property(
        streams,
        fc.array(fc.integer({ min: 0, max: 200 }), { minLength: 40 }),
        (stream, shares) => {
          const { spec, items } = stream;
          const window = new SlidingWindow(spec);
          const transitions: Transition[] = [];
          for (const [index, item] of items.entries()) {
            transitions.push(...window.count(item));
            const nextS = items[index + 1]?.receivedSecond ?? untilOf(stream);
            const pauseS = nextS - item.receivedSecond;
            transitions.push(...window.tick(item.receivedSecond + Math.min(pauseS, shares[index] ?? 0)));
          }
          transitions.push(...window.tick(untilOf(stream)));
          const expected = findFirings(spec, items, untilOf(stream));
          expect(collect(transitions)).toEqual(
            expected.map(({ startedAtS, resolvedAtS }) => ({ startedAtS, resolvedAtS })),
          );
        },
      ),
      { numRuns: 1000 },
    );
  });

  it('takes received times in any order, counting each entry at most once', () => {
    const times = fc.integer({ min: START_S, max: START_S + 100 });
    const item = fc.record({ second: times, receivedSecond: times, count: fc.integer({ min: 1, max: 5 }) });
    fc.assert(
      fc.property(specs, fc.array(item, { maxLength: 50 }), (spec, items) => {
        const window = new SlidingWindow(spec);
        const transitions = items.flatMap((one) => window.count(one));
        collect(transitions);
        const total = items.reduce((sum, { count }) => sum + count, 0);
        expect(window.counted).toBeLessThanOrEqual(total);
        expect(window.sum).toBeLessThanOrEqual(window.counted);
        expect(window.isFiring).toBe(transitions.length > 0 && transitions.at(-1)?.kind === 'fired');
      }),
    );
  });
});
