import type { AlertCondition } from '@logpond/schema/alert-condition';
import { matchesLevel } from '@logpond/schema/alert-condition';
import { LEVELS } from '@logpond/schema/log-entry';
import type { Level } from '@logpond/schema/log-entry';
import { EntryReader, measureText } from './entry-columns.ts';
import type { EntryColumns } from './entry-columns.ts';
import { MessageRules } from './message-rules.ts';
import type { MessageRule } from './message-rules.ts';
import { compileMetadata } from './metadata-test.ts';
import { PatternAllowance } from './pattern-allowance.ts';
import type { SkippedAsks } from './pattern-allowance.ts';
import { PatternRules } from './pattern-rules.ts';
import type { PatternRule } from './pattern-rules.ts';
import { compilePattern } from './pattern.ts';
import { compileText, compileTrace, readQuestion } from './text-test.ts';

export type { EntryColumns, StringRows } from './entry-columns.ts';

/** What of a rule decides about matching; the window and the threshold do not. */
export type MatchableRule = { id: string; condition: AlertCondition; service?: string | null | undefined };

/** Told of each match: the rule's index, and the entry's row in its columns. */
export type OnMatch = (ruleIndex: number, row: number) => void;

type DigestRule = {
  id: string;
  index: number;
  service: string | undefined;
  /** Whether it asks a pattern about the service, which is charged. */
  isPattern: boolean;
  test: (level: number, service: string) => boolean;
};
type EntryTest = (entry: EntryReader) => boolean;
type EntryRule = { index: number; service: string | undefined; test: EntryTest };

export const METADATA_PREFIX = 'metadata.';
/** Pairs of level and service whose rules are remembered; more services than that are worked out again. */
const MEMO_PAIRS_MAX = 1000;
/** What is asked about without a turn of others: entries, and bytes of the texts that are looked at. */
const SLICE = { rowsMax: 2_000, bytesMax: 256 * 1024 };
/** Entries without a digest whose levels and services are asked about without a turn of others. */
const DIGEST_SLICE_ROWS = 250;

/** The levels that a condition on `level` matches. */
export function listMatchingLevels(condition: AlertCondition): Level[] {
  const isMatch = condition.operator === 'regex' ? compilePattern(String(condition.value)) : undefined;
  return LEVELS.filter((level, index) => isMatch?.(level) ?? matchesLevel(condition, index + 1));
}

/**
 * The rules of one project, compiled to find at once all that match an entry. Rules on level and service are answered
 * for a pair of both (`matchDigest`), the others row by row of a block, decoding only the columns that they ask for.
 * A rule's `service` must equal the entry's too.
 *
 * Every rule's condition has passed its schema. Texts are compared exactly by equality; `contains`, `not_contains`
 * and `starts_with` ignore case by lower case; a negated operator is the exact negation, so that it matches where the
 * field is absent. The same in SQL: packages/db/src/alert-sql.ts.
 *
 * Patterns are asked for as long as the project's allowance lets them; without one, always.
 */
export class ProjectMatcher {
  /** Whether there are rules on level and service only. */
  readonly needsDigest: boolean;
  /** Whether there are others. */
  readonly needsColumns: boolean;
  readonly #digestRules: DigestRule[] = [];
  readonly #entryRules: EntryRule[] = [];
  readonly #messageRules: MessageRules | undefined;
  readonly #patternRules: PatternRules | undefined;
  readonly #allowance: PatternAllowance;
  readonly #memo = new Map<string, (readonly number[] | undefined)[]>();
  #memoPairs = 0;

  /** @throws {RangeError} when the texts that are looked for would take more than 64 MB. */
  constructor(rules: readonly MatchableRule[], allowance = new PatternAllowance(() => 0)) {
    const messageRules: MessageRule[] = [];
    const patternRules: PatternRule[] = [];
    for (const [index, rule] of rules.entries()) {
      const { field, operator } = rule.condition;
      if (field === 'level' || field === 'service') this.#digestRules.push(compileDigestRule(index, rule));
      else if (operator === 'regex') patternRules.push(compilePatternRule(index, rule));
      else if (field === 'message') this.#addMessageRule(index, rule, messageRules);
      else this.#entryRules.push(compileEntryRule(index, rule));
    }
    this.#allowance = allowance;
    this.#messageRules = messageRules.length === 0 ? undefined : new MessageRules(messageRules);
    this.#patternRules = patternRules.length === 0 ? undefined : new PatternRules(patternRules, allowance);
    this.needsDigest = this.#digestRules.length > 0;
    this.needsColumns = this.#hasPlainRules || this.#patternRules !== undefined;
  }

  get #hasPlainRules(): boolean {
    return this.#entryRules.length > 0 || this.#messageRules !== undefined;
  }

  /** What patterns were not asked about since the last call, as their time was spent; undefined: nothing. */
  takeSkipped(): SkippedAsks | undefined {
    return this.#allowance.takeSkipped();
  }

  /**
   * Indexes of the rules on level and service only that match entries of this level (1 to 5) and service. The answers
   * for about 1,000 pairs are remembered.
   *
   * @param entries how many there are of them.
   */
  matchDigest(level: number, service: string, entries = 1): readonly number[] {
    const known = this.#memo.get(service)?.[level];
    if (known !== undefined) return known;
    const matching: number[] = [];
    let isWhole = true;
    for (const rule of this.#digestRules) {
      const answer = this.#askDigest(rule, level, service);
      if (answer === true) matching.push(rule.index);
      if (answer !== undefined) continue;
      this.#allowance.skip(rule.id, entries);
      isWhole = false;
    }
    if (isWhole) this.#remember(level, service, matching);
    return matching;
  }

  /** All other rules on rows [from, to) of a block. */
  matchRows(columns: EntryColumns, from: number, to: number, onMatch: OnMatch): void {
    const turns = this.matchRowsInTurns(columns, from, to, onMatch);
    while (turns.next().done !== true);
  }

  /** All rules on rows [from, to) of a block: for runs that have no digest. */
  matchAllRows(columns: EntryColumns, from: number, to: number, onMatch: OnMatch): void {
    const turns = this.matchAllRowsInTurns(columns, from, to, onMatch);
    while (turns.next().done !== true);
  }

  /** The same as `matchRows`, in parts of some 20 ms as a rule: between them others may have a turn. */
  *matchRowsInTurns(columns: EntryColumns, from: number, to: number, onMatch: OnMatch): Generator<undefined> {
    const patterns = this.#patternRules;
    for (let row = from; row < to && this.needsColumns;) {
      const sliceEnd = Math.min(to, row + SLICE.rowsMax);
      const end = this.#hasPlainRules ? this.#matchPlain(columns, row, sliceEnd, onMatch) : sliceEnd;
      yield;
      if (patterns !== undefined) {
        const placeEnd = patterns.placeOf(end);
        for (let place = patterns.placeOf(row); place < placeEnd; yield)
          place = patterns.ask(columns, place, placeEnd, onMatch);
      }
      row = end;
    }
  }

  /** The same as `matchAllRows`, in parts of some 20 ms as a rule. */
  *matchAllRowsInTurns(
    columns: EntryColumns,
    from: number,
    to: number,
    onMatch: OnMatch,
  ): Generator<undefined> {
    for (let row = from; row < to && this.needsDigest;) {
      const reader = new EntryReader(columns);
      const levels = columns.levels();
      for (const end = Math.min(to, row + DIGEST_SLICE_ROWS); row < end; row += 1) {
        reader.moveTo(row);
        for (const index of this.matchDigest(levels[row] ?? 0, reader.service())) onMatch(index, row);
      }
      yield;
    }
    yield* this.matchRowsInTurns(columns, from, to, onMatch);
  }

  /** The rules without patterns. @returns the row to go on at: all up to `to`, or as many as are enough for one turn. */
  #matchPlain(columns: EntryColumns, from: number, to: number, onMatch: OnMatch): number {
    const reader = new EntryReader(columns);
    const messages = this.#messageRules === undefined ? undefined : columns.messages();
    let scannedBytes = 0;
    let row = from;
    for (; row < to && scannedBytes + reader.bytesRead < SLICE.bytesMax; row += 1) {
      reader.moveTo(row);
      if (messages !== undefined) {
        this.#messageRules?.matchRow(messages, reader, onMatch);
        scannedBytes += measureText(messages, row);
      }
      for (const { index, service, test } of this.#entryRules) {
        if ((service === undefined || service === reader.service()) && test(reader)) onMatch(index, row);
      }
    }
    return row;
  }

  /** Undefined: the pattern could not be asked. */
  #askDigest(rule: DigestRule, level: number, service: string): boolean | undefined {
    if (rule.service !== undefined && rule.service !== service) return false;
    if (!rule.isPattern) return rule.test(level, service);
    this.#allowance.begin();
    const answer = this.#allowance.admit(service.length) ? rule.test(level, service) : undefined;
    this.#allowance.end();
    return answer;
  }

  #remember(level: number, service: string, matching: number[]): void {
    if (this.#memoPairs >= MEMO_PAIRS_MAX) {
      this.#memo.clear();
      this.#memoPairs = 0;
    }
    const byLevel = this.#memo.get(service) ?? [];
    byLevel[level] = matching;
    this.#memo.set(service, byLevel);
    this.#memoPairs += 1;
  }

  #addMessageRule(index: number, rule: MatchableRule, messageRules: MessageRule[]): void {
    const question = readQuestion(rule.condition);
    if (['equals', 'in', 'contains', 'starts_with'].includes(question.operator)) {
      messageRules.push({ index, service: readService(rule), question });
      return;
    }
    const { test } = compileText(question);
    this.#entryRules.push({
      index,
      service: readService(rule),
      test: (entry) => test(entry.message()) !== question.isNegated,
    });
  }
}

/** Without lone surrogates, as what is stored. */
function readService({ service }: Pick<MatchableRule, 'service'>): string | undefined {
  return service?.toWellFormed();
}

function compileDigestRule(index: number, rule: MatchableRule): DigestRule {
  const { condition, id } = rule;
  const isLevel = condition.field === 'level';
  const test = isLevel ? compileLevel(condition) : compileService(condition);
  const isPattern = !isLevel && condition.operator === 'regex';
  return { id, index, service: readService(rule), isPattern, test };
}

function compileLevel(condition: AlertCondition): DigestRule['test'] {
  const levels = new Set<string | undefined>(listMatchingLevels(condition));
  return (level) => levels.has(LEVELS[level - 1]);
}

function compileService(condition: AlertCondition): DigestRule['test'] {
  const question = readQuestion(condition);
  const { of, test } = compileText(question);
  return (_level, service) => test(of === 'lower' ? service.toLowerCase() : service) !== question.isNegated;
}

/** A rule on `trace_id` or on metadata, without a pattern. */
function compileEntryRule(index: number, { condition, service }: MatchableRule): EntryRule {
  const isMetadata = condition.field.startsWith(METADATA_PREFIX);
  const test = isMetadata ? compileMetadataTest(condition) : compileTraceTest(condition);
  return { index, service: readService({ service }), test };
}

function compileMetadataTest(condition: AlertCondition): EntryTest {
  const path = condition.field.slice(METADATA_PREFIX.length).toWellFormed();
  const test = compileMetadata(path, readQuestion(condition));
  return (entry) => test(entry.metadata());
}

function compileTraceTest(condition: AlertCondition): EntryTest {
  const question = readQuestion(condition);
  const { of, test } = compileTrace(question);
  return (entry) => {
    const traceId = entry.traceId();
    const isYes = traceId !== undefined && test(of === 'lower' ? traceId.toLowerCase() : traceId);
    return isYes !== question.isNegated;
  };
}

function compilePatternRule(index: number, rule: MatchableRule): PatternRule {
  const { condition, id } = rule;
  const head = { id, index, service: readService(rule) };
  if (condition.field.startsWith(METADATA_PREFIX))
    return { ...head, of: 'metadata', test: compileMetadataTest(condition) };
  if (condition.field !== 'message') return { ...head, of: 'traceId', test: compileTraceTest(condition) };
  const { test } = compileText(readQuestion(condition));
  return { ...head, of: 'message', test: (entry) => test(entry.message()) };
}
