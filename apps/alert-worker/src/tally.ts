import { FUTURE_MAX_S } from '@logpond/alerting/window';
import type { WindowSpec } from '@logpond/alerting/window';
import type { ProjectRules } from './rule-set.ts';
import type { Counted, WatchedRule } from './watched-rule.ts';

/** Entries by the second of their time. */
type BySecond = Map<number, number>;

/** What was received in one second: entries that the same rules match, and matches of single rules. */
type Received = {
  receivedSecond: number;
  alike: Map<readonly number[], BySecond>;
  single: Map<number, BySecond>;
};

/** Rules, by index, whose windows have the same buckets. */
type SameBuckets = { spec: WindowSpec; ruleIndexes: number[] };

/** By the matcher's list, which is of one compiled project: it is asked for again with every tally. */
const groupsOfLists = new WeakMap<readonly number[], readonly SameBuckets[]>();

/**
 * Matching entries of one project that are not in its windows yet. The digests of many blocks say the same again and
 * again; summing them up first makes the windows a matter of seconds and not of blocks.
 *
 * Entries stay in the order of the stream as far as it matters: what was received later than all before it comes
 * after that. So it changes nothing where one tally ends and the next begins, also when the clocks of two API
 * processes differ.
 */
export class ProjectTally {
  readonly #project: ProjectRules;
  readonly #received: Received[] = [];
  /** By the second; those since the newest one was first seen. */
  readonly #open = new Map<number, Received>();
  readonly #isTouched: Uint8Array;
  #touchedRules = 0;
  #cells = 0;
  #oldestS = Infinity;
  #newestS = -Infinity;

  constructor(project: ProjectRules) {
    this.#project = project;
    this.#isTouched = new Uint8Array(project.rules.length);
  }

  /** Sums kept, for a bound. */
  get cells(): number {
    return this.#cells;
  }

  /** Seconds between the receiving of the oldest and of the newest entry. */
  get spanS(): number {
    return this.#cells === 0 ? 0 : this.#newestS - this.#oldestS;
  }

  /** Rules that matched something. */
  get touchedRules(): number {
    return this.#touchedRules;
  }

  /** @param matches rules by index, of which a matcher has one list for all entries that are alike. */
  addAlike(matches: readonly number[], { second, receivedSecond, count }: Counted): void {
    const { alike } = this.#openSecond(receivedSecond);
    if (!alike.has(matches)) for (const ruleIndex of matches) this.#touch(ruleIndex);
    this.#add(alike, matches, second, count);
  }

  addMatch(ruleIndex: number, second: number, receivedSecond: number): void {
    this.#touch(ruleIndex);
    this.#add(this.#openSecond(receivedSecond).single, ruleIndex, second, 1);
  }

  /**
   * Everything added that a window may count, by rule and bucket of its window. What is too old for the window, or
   * too far ahead, is left out once and not rule by rule: importing old entries costs next to nothing.
   */
  *sum(): Generator<{ rule: WatchedRule; counted: Counted }> {
    for (const received of this.#received) {
      const { receivedSecond } = received;
      for (const [ruleIndex, buckets] of this.#sumByRule(received)) {
        const rule = this.#findRule(ruleIndex);
        for (const [second, count] of buckets) yield { rule, counted: { second, receivedSecond, count } };
      }
    }
  }

  /** One sum for each rule and bucket: a window is dear beside an addition, and a rule is in many lists. */
  #sumByRule({ receivedSecond, alike, single }: Received): ReadonlyMap<number, BySecond> {
    const sums = new Map<number, BySecond>();
    for (const [ruleIndex, bySecond] of single) {
      sums.set(ruleIndex, sumBuckets(bySecond, this.#findRule(ruleIndex).spec, receivedSecond));
    }
    for (const [matches, bySecond] of alike) {
      for (const { spec, ruleIndexes } of this.#groupByBuckets(matches)) {
        const buckets = sumBuckets(bySecond, spec, receivedSecond);
        for (const ruleIndex of ruleIndexes) addBuckets(sums, ruleIndex, buckets);
      }
    }
    return sums;
  }

  #groupByBuckets(matches: readonly number[]): readonly SameBuckets[] {
    let groups = groupsOfLists.get(matches);
    if (groups === undefined) {
      groups = this.#makeGroups(matches);
      groupsOfLists.set(matches, groups);
    }
    return groups;
  }

  #makeGroups(ruleIndexes: readonly number[]): SameBuckets[] {
    const groups = new Map<string, SameBuckets>();
    for (const ruleIndex of ruleIndexes) {
      const { spec } = this.#findRule(ruleIndex);
      const key = `${spec.bucketS} ${spec.span}`;
      const group = groups.get(key);
      if (group === undefined) groups.set(key, { spec, ruleIndexes: [ruleIndex] });
      else group.ruleIndexes.push(ruleIndex);
    }
    return [...groups.values()];
  }

  #findRule(ruleIndex: number): WatchedRule {
    const rule = this.#project.rules[ruleIndex];
    if (rule === undefined)
      throw new RangeError(`expected a rule below ${this.#project.rules.length}, got ${ruleIndex}`);
    return rule;
  }

  #touch(ruleIndex: number): void {
    if (this.#isTouched[ruleIndex] === 1) return;
    this.#isTouched[ruleIndex] = 1;
    this.#touchedRules += 1;
  }

  #openSecond(receivedSecond: number): Received {
    if (receivedSecond > this.#newestS) {
      this.#newestS = receivedSecond;
      this.#open.clear();
    }
    let received = this.#open.get(receivedSecond);
    if (received === undefined) {
      received = { receivedSecond, alike: new Map(), single: new Map() };
      this.#open.set(receivedSecond, received);
      this.#received.push(received);
      this.#oldestS = Math.min(this.#oldestS, receivedSecond);
    }
    return received;
  }

  #add<Key>(sums: Map<Key, BySecond>, key: Key, second: number, count: number): void {
    let bySecond = sums.get(key);
    if (bySecond === undefined) {
      bySecond = new Map();
      sums.set(key, bySecond);
    }
    const before = bySecond.get(second);
    if (before === undefined) this.#cells += 1;
    bySecond.set(second, (before ?? 0) + count);
  }
}

function addBuckets(sums: Map<number, BySecond>, ruleIndex: number, buckets: BySecond): void {
  const known = sums.get(ruleIndex);
  if (known === undefined) {
    sums.set(ruleIndex, new Map(buckets));
    return;
  }
  for (const [second, count] of buckets) known.set(second, (known.get(second) ?? 0) + count);
}

/** Counts by the start of the bucket of a window that they fall into, as far as it can touch one that counts them. */
function sumBuckets(bySecond: BySecond, { bucketS, span }: WindowSpec, receivedSecond: number): BySecond {
  const received = Math.floor(receivedSecond / bucketS);
  const buckets: BySecond = new Map();
  for (const [second, count] of bySecond) {
    const bucket = Math.min(Math.floor(second / bucketS), received);
    if (second > receivedSecond + FUTURE_MAX_S || bucket < received - (span - 1)) continue;
    const start = bucket * bucketS;
    buckets.set(start, (buckets.get(start) ?? 0) + count);
  }
  return buckets;
}
