import { ByteAutomaton } from './byte-automaton.ts';
import { startOfText } from './entry-columns.ts';
import type { EntryReader, StringRows } from './entry-columns.ts';
import { findTriggers } from './literal-triggers.ts';
import type { Question } from './text-test.ts';

/** A rule on the message whose question is one of equality, `contains` or `starts_with`. */
export type MessageRule = { index: number; service: string | undefined; question: Question };

/** `isFound`: where its bytes are, the rule's question is answered with yes. */
type Literal = { rule: MessageRule; lower: string; isAtStart: boolean; isFound: boolean };

const NON_ASCII_MIN = 0x80;

/**
 * The rules of a project that look for texts in messages, all in one pass over the bytes: the automaton tells which of
 * them may match, and those are tested on the message in lower case. Equality is one look-up of messages that have
 * the length of a text that is asked for.
 */
export class MessageRules {
  readonly #negated: readonly MessageRule[];
  readonly #exact = new Map<string, MessageRule[]>();
  /** By length in bytes: whether an exact text has it. */
  readonly #exactLengths: Uint8Array;
  /** By string of the automaton: the literals that it may stand for. */
  readonly #literals: Literal[][] = [];
  /** Literals without any character that could be looked for in bytes, such as words in Cyrillic letters. */
  readonly #nonAscii: Literal[] = [];
  readonly #automaton: ByteAutomaton | undefined;
  /** By rule: the last turn in which its question was answered with yes. */
  readonly #yes: Float64Array;
  readonly #found: Int32Array;
  #turn = 0;

  constructor(rules: readonly MessageRule[]) {
    this.#negated = rules.filter(({ question }) => question.isNegated);
    this.#yes = new Float64Array(Math.max(0, ...rules.map(({ index }) => index + 1)));
    const encoder = new TextEncoder();
    const triggers = new Map<string, number>();
    const lengths = new Set<number>();
    for (const rule of rules) {
      const { operator, texts } = rule.question;
      if (operator === 'contains' || operator === 'starts_with') {
        this.#addLiteral(triggers, rule, (texts[0] ?? '').toLowerCase());
        continue;
      }
      for (const text of texts) {
        this.#exact.set(text, [...(this.#exact.get(text) ?? []), rule]);
        lengths.add(encoder.encode(text).length);
      }
    }
    this.#exactLengths = new Uint8Array(Math.max(0, ...lengths) + 1);
    for (const length of lengths) this.#exactLengths[length] = 1;
    this.#found = new Int32Array(triggers.size);
    const patterns = [...triggers.keys()].map((text) => encoder.encode(text));
    this.#automaton = patterns.length === 0 ? undefined : new ByteAutomaton(patterns);
  }

  #addLiteral(triggers: Map<string, number>, rule: MessageRule, lower: string): void {
    const isAtStart = rule.question.operator === 'starts_with';
    const found = findTriggers(lower);
    const literal = { rule, lower, isAtStart, isFound: found?.isWhole === true && !isAtStart };
    if (found === undefined) {
      this.#nonAscii.push(literal);
      return;
    }
    for (const spelling of found.spellings) {
      const known = triggers.get(spelling) ?? triggers.size;
      triggers.set(spelling, known);
      this.#literals[known] = [...(this.#literals[known] ?? []), literal];
    }
  }

  /** Calls back for each rule that matches the entry that the reader is at; `messages` is the column it reads. */
  matchRow(
    messages: StringRows,
    reader: EntryReader,
    onMatch: (ruleIndex: number, row: number) => void,
  ): void {
    this.#turn += 1;
    const { bytes, ends } = messages;
    const start = startOfText(messages, reader.row);
    const end = ends[reader.row] ?? start;
    const count = this.#automaton?.scan(bytes, start, end, this.#found) ?? 0;
    for (let at = 0; at < count; at += 1) {
      this.#testLiterals(this.#literals[this.#found[at] ?? 0] ?? [], reader, onMatch);
    }
    if (this.#nonAscii.length > 0 && hasNonAscii(bytes, start, end)) {
      this.#testLiterals(this.#nonAscii, reader, onMatch);
    }
    if (this.#exactLengths[end - start] === 1) {
      for (const rule of this.#exact.get(reader.message()) ?? []) this.#sayYes(rule, reader, onMatch);
    }
    for (const { index, service } of this.#negated) {
      if (this.#yes[index] === this.#turn || (service !== undefined && service !== reader.service()))
        continue;
      onMatch(index, reader.row);
    }
  }

  #testLiterals(
    literals: readonly Literal[],
    reader: EntryReader,
    onMatch: (ruleIndex: number, row: number) => void,
  ): void {
    for (const { rule, lower, isAtStart, isFound } of literals) {
      if (this.#yes[rule.index] === this.#turn) continue;
      const isYes =
        isFound ||
        (isAtStart ? reader.lowerMessage().startsWith(lower) : reader.lowerMessage().includes(lower));
      if (isYes) this.#sayYes(rule, reader, onMatch);
    }
  }

  #sayYes(
    { index, service, question }: MessageRule,
    reader: EntryReader,
    onMatch: (ruleIndex: number, row: number) => void,
  ): void {
    if (this.#yes[index] === this.#turn) return;
    this.#yes[index] = this.#turn;
    if (question.isNegated || (service !== undefined && service !== reader.service())) return;
    onMatch(index, reader.row);
  }
}

function hasNonAscii(bytes: Uint8Array, from: number, to: number): boolean {
  for (let at = from; at < to; at += 1) if ((bytes[at] ?? 0) >= NON_ASCII_MIN) return true;
  return false;
}
