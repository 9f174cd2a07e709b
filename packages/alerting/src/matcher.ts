import type { AlertCondition } from '@logpond/schema/alert-condition';
import { matchesLevel } from '@logpond/schema/alert-condition';
import { LEVELS } from '@logpond/schema/log-entry';
import type { Level } from '@logpond/schema/log-entry';
import { EntryReader } from './entry-columns.ts';
import type { EntryColumns } from './entry-columns.ts';
import { MessageRules } from './message-rules.ts';
import type { MessageRule } from './message-rules.ts';
import { compileMetadata } from './metadata-test.ts';
import { compilePattern } from './pattern.ts';
import { compileText, compileTrace, readQuestion } from './text-test.ts';

export type { EntryColumns, StringRows } from './entry-columns.ts';

/** What of a rule decides about matching; the window and the threshold do not. */
export type MatchableRule = { id: string; condition: AlertCondition; service?: string | null | undefined };

/** Told of each match: the rule's index, and the entry's row in its columns. */
export type OnMatch = (ruleIndex: number, row: number) => void;

type DigestRule = { index: number; test: (level: number, service: string) => boolean };
type EntryRule = { index: number; service: string | undefined; test: (entry: EntryReader) => boolean };

export const METADATA_PREFIX = 'metadata.';
/** Pairs of level and service whose rules are remembered; more services than that are worked out again. */
const MEMO_PAIRS_MAX = 1000;

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
 */
export class ProjectMatcher {
  /** Whether there are rules on level and service only. */
  readonly needsDigest: boolean;
  /** Whether there are others. */
  readonly needsColumns: boolean;
  readonly #digestRules: DigestRule[] = [];
  readonly #entryRules: EntryRule[] = [];
  readonly #messageRules: MessageRules | undefined;
  readonly #memo = new Map<string, (readonly number[] | undefined)[]>();
  #memoPairs = 0;

  /** @throws {RangeError} when the texts that are looked for would take more than 64 MB. */
  constructor(rules: readonly MatchableRule[]) {
    const messageRules: MessageRule[] = [];
    for (const [index, rule] of rules.entries()) {
      const { field } = rule.condition;
      if (field === 'level' || field === 'service') this.#digestRules.push(compileDigestRule(index, rule));
      else if (field === 'message') this.#addMessageRule(index, rule, messageRules);
      else this.#entryRules.push(compileEntryRule(index, rule));
    }
    this.#messageRules = messageRules.length === 0 ? undefined : new MessageRules(messageRules);
    this.needsDigest = this.#digestRules.length > 0;
    this.needsColumns = this.#entryRules.length > 0 || this.#messageRules !== undefined;
  }

  /**
   * Indexes of the rules on level and service only that match entries of this level (1 to 5) and service. The answers
   * for about 1,000 pairs are remembered.
   */
  matchDigest(level: number, service: string): readonly number[] {
    const known = this.#memo.get(service)?.[level];
    if (known !== undefined) return known;
    if (this.#memoPairs >= MEMO_PAIRS_MAX) {
      this.#memo.clear();
      this.#memoPairs = 0;
    }
    const matching: number[] = [];
    for (const { index, test } of this.#digestRules) if (test(level, service)) matching.push(index);
    const byLevel = this.#memo.get(service) ?? [];
    byLevel[level] = matching;
    this.#memo.set(service, byLevel);
    this.#memoPairs += 1;
    return matching;
  }

  /** All other rules on rows [from, to) of a block. */
  matchRows(columns: EntryColumns, from: number, to: number, onMatch: OnMatch): void {
    if (!this.needsColumns) return;
    const reader = new EntryReader(columns);
    const messages = this.#messageRules === undefined ? undefined : columns.messages();
    for (let row = from; row < to; row += 1) {
      reader.moveTo(row);
      if (messages !== undefined) this.#messageRules?.matchRow(messages, reader, onMatch);
      for (const { index, service, test } of this.#entryRules) {
        if ((service === undefined || service === reader.service()) && test(reader)) onMatch(index, row);
      }
    }
  }

  /** All rules on rows [from, to) of a block: for runs that have no digest. */
  matchAllRows(columns: EntryColumns, from: number, to: number, onMatch: OnMatch): void {
    if (this.needsDigest) {
      const reader = new EntryReader(columns);
      const levels = columns.levels();
      for (let row = from; row < to; row += 1) {
        reader.moveTo(row);
        for (const index of this.matchDigest(levels[row] ?? 0, reader.service())) onMatch(index, row);
      }
    }
    this.matchRows(columns, from, to, onMatch);
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
  const { condition } = rule;
  const test = condition.field === 'level' ? compileLevel(condition) : compileService(condition);
  const service = readService(rule);
  if (service === undefined) return { index, test };
  return { index, test: (level, found) => found === service && test(level, found) };
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

/** A rule on `trace_id` or on metadata. */
function compileEntryRule(index: number, { condition, service }: MatchableRule): EntryRule {
  const question = readQuestion(condition);
  const rule = { index, service: readService({ service }) };
  if (condition.field.startsWith(METADATA_PREFIX)) {
    const test = compileMetadata(condition.field.slice(METADATA_PREFIX.length).toWellFormed(), question);
    return { ...rule, test: (entry) => test(entry.metadata()) };
  }
  const { of, test } = compileTrace(question);
  return {
    ...rule,
    test: (entry) => {
      const traceId = entry.traceId();
      const isYes = traceId !== undefined && test(of === 'lower' ? traceId.toLowerCase() : traceId);
      return isYes !== question.isNegated;
    },
  };
}
