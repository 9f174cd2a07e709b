import { EntryReader, measureText } from './entry-columns.ts';
import type { EntryColumns, StringRows } from './entry-columns.ts';
import type { PatternAllowance } from './pattern-allowance.ts';

/** A rule with a regular expression on messages, metadata or traces. */
export type PatternRule = {
  id: string;
  index: number;
  service: string | undefined;
  of: 'message' | 'metadata' | 'traceId';
  test: (entry: EntryReader) => boolean;
};

/**
 * The patterns of a project, asked about one entry after the other for as long as its allowance lets them. Places are
 * counted in asks, so that there can be a pause between two patterns of one entry, too.
 */
export class PatternRules {
  readonly #rules: readonly PatternRule[];
  readonly #allowance: PatternAllowance;

  constructor(rules: readonly PatternRule[], allowance: PatternAllowance) {
    this.#rules = rules;
    this.#allowance = allowance;
  }

  /** The place where asking about a row begins. */
  placeOf(row: number): number {
    return row * this.#rules.length;
  }

  /**
   * Asks from one place until before another, or until it has taken long enough for one turn.
   *
   * @returns the place to go on at.
   */
  ask(
    block: EntryColumns,
    from: number,
    to: number,
    onMatch: (ruleIndex: number, row: number) => void,
  ): number {
    const allowance = this.#allowance;
    const rules = this.#rules;
    const columns = openUncharged(block, allowance);
    const reader = new EntryReader(columns);
    allowance.begin();
    let place = from;
    let row = Math.floor(from / rules.length);
    let next = from - row * rules.length;
    for (let isDue = false; place < to && !isDue; row += 1, next = 0) {
      reader.moveTo(row);
      allowance.earnEntry();
      for (; next < rules.length && !isDue; next += 1, place += 1) {
        const rule = rules[next];
        if (rule === undefined || (rule.service !== undefined && rule.service !== reader.service())) continue;
        if (!allowance.admit(measure(rule, columns, row))) allowance.skip(rule.id, 1);
        else if (rule.test(reader)) onMatch(rule.index, row);
        isDue = allowance.meter();
      }
    }
    allowance.end();
    return place;
  }
}

/** The same columns, but that inflating them is not charged: entries of other projects lie in them, too. */
function openUncharged(columns: EntryColumns, allowance: PatternAllowance): EntryColumns {
  const openOnce = (read: () => StringRows): (() => StringRows) => {
    let rows: StringRows | undefined;
    return () => (rows ??= allowance.exclude(read));
  };
  let isTraceOpen = false;
  const readTrace = (row: number): string | undefined => {
    if (isTraceOpen) return columns.traceId(row);
    isTraceOpen = true;
    return allowance.exclude(() => columns.traceId(row));
  };
  return {
    rows: columns.rows,
    levels: () => columns.levels(),
    services: openOnce(() => columns.services()),
    messages: openOnce(() => columns.messages()),
    metadata: openOnce(() => columns.metadata()),
    traceId: readTrace,
  };
}

/** Bytes of what a rule reads, without reading it. */
function measure({ of }: PatternRule, columns: EntryColumns, row: number): number {
  if (of === 'message') return measureText(columns.messages(), row);
  if (of === 'metadata') return measureText(columns.metadata(), row);
  return columns.traceId(row)?.length ?? 0;
}
