import type { ProjectRules } from './rule-set.ts';
import type { Counted, WatchedRule } from './watched-rule.ts';

/** Entries by the second of their time. */
type BySecond = Map<number, number>;

/** What was received in one second: entries that the same rules match, and matches of single rules. */
type Received = { alike: Map<readonly number[], BySecond>; single: Map<number, BySecond> };

/**
 * Matching entries of one project that are not in its windows yet. The digests of many blocks say the same again and
 * again; summing them up first makes the windows a matter of seconds and not of blocks.
 */
export class ProjectTally {
  readonly #project: ProjectRules;
  readonly #received = new Map<number, Received>();
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

  /** Everything added, by rule, in the order of receiving. */
  *sum(): Generator<{ rule: WatchedRule; counted: Counted }> {
    const seconds = [...this.#received.keys()].toSorted((one, other) => one - other);
    for (const receivedSecond of seconds) {
      for (const [ruleIndex, bySecond] of sumByRule(this.#openSecond(receivedSecond))) {
        const rule = this.#project.rules[ruleIndex];
        if (rule === undefined)
          throw new RangeError(`expected a rule below ${this.#project.rules.length}, got ${ruleIndex}`);
        for (const [second, count] of bySecond) yield { rule, counted: { second, receivedSecond, count } };
      }
    }
  }

  #touch(ruleIndex: number): void {
    if (this.#isTouched[ruleIndex] === 1) return;
    this.#isTouched[ruleIndex] = 1;
    this.#touchedRules += 1;
  }

  #openSecond(receivedSecond: number): Received {
    let received = this.#received.get(receivedSecond);
    if (received === undefined) {
      received = { alike: new Map(), single: new Map() };
      this.#received.set(receivedSecond, received);
      this.#oldestS = Math.min(this.#oldestS, receivedSecond);
      this.#newestS = Math.max(this.#newestS, receivedSecond);
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

function sumByRule({ alike, single }: Received): Map<number, BySecond> {
  const byRule = new Map([...single].map(([ruleIndex, bySecond]) => [ruleIndex, new Map(bySecond)]));
  for (const [matches, bySecond] of alike) {
    for (const ruleIndex of matches) {
      const sums = byRule.get(ruleIndex);
      if (sums === undefined) byRule.set(ruleIndex, new Map(bySecond));
      else for (const [second, count] of bySecond) sums.set(second, (sums.get(second) ?? 0) + count);
    }
  }
  return byRule;
}
