import type { AlertCondition } from '@logpond/schema/alert-condition';
import type { EntryColumns, StringRows } from './entry-columns.ts';
import { ProjectMatcher } from './matcher.ts';
import type { MatchableRule } from './matcher.ts';

/** What the tests of the matcher share. */
export type Entry = {
  level: number;
  service: string;
  message: string;
  metadata: string;
  traceId?: string | undefined;
};

function encodeRows(texts: readonly string[]): StringRows {
  const ends = new Uint32Array(texts.length);
  const parts: Buffer[] = [];
  let at = 0;
  for (const [row, text] of texts.entries()) {
    const bytes = Buffer.from(text);
    const length: number[] = [];
    let rest = bytes.length;
    for (; rest >= 0x80; rest = Math.floor(rest / 128)) length.push((rest % 128) | 0x80);
    parts.push(Buffer.from([...length, rest]), bytes);
    at += length.length + 1 + bytes.length;
    ends[row] = at;
  }
  return { bytes: Buffer.concat(parts), ends };
}

export function columnsOf(entries: readonly Entry[]): EntryColumns {
  return {
    rows: entries.length,
    levels: () => Int8Array.from(entries, ({ level }) => level),
    services: () => encodeRows(entries.map(({ service }) => service)),
    messages: () => encodeRows(entries.map(({ message }) => message)),
    metadata: () => encodeRows(entries.map(({ metadata }) => metadata)),
    traceId: (row) => entries[row]?.traceId,
  };
}

export function ruleOf(
  field: string,
  operator: AlertCondition['operator'],
  value?: AlertCondition['value'],
): MatchableRule {
  return { id: 'rule', condition: { field, operator, value, threshold: 1, timeWindow: '1m' } };
}

export function entryOf(rest: Partial<Entry> = {}): Entry {
  return { level: 2, service: 'api', message: 'hello', metadata: '{}', ...rest };
}

/** "rule index:row" of each match. */
export function matchAll(rules: readonly MatchableRule[], entries: readonly Entry[]): string[] {
  const found: string[] = [];
  new ProjectMatcher(rules).matchAllRows(columnsOf(entries), 0, entries.length, (rule, row) => {
    found.push(`${rule}:${row}`);
  });
  return found.toSorted();
}

export const isMatch = (rule: MatchableRule, entry: Entry): boolean => matchAll([rule], [entry]).length === 1;
