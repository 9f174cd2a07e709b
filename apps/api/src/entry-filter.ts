import { compileTextMatch } from '@logpond/db/full-text';
import type { BlockEntry } from '@logpond/log-block/decode';
import { ApiError } from '@logpond/schema/api-error';
import { LEVELS } from '@logpond/schema/log-entry';
import type { LogFilter } from '@logpond/schema/log-query';
import { parseMetadata, readMetadataValues, splitMetadataPath } from '@logpond/schema/metadata-path';
import { toTraceKey } from '@logpond/schema/trace-key';

export type EntryPredicate = (entry: BlockEntry) => boolean;

/**
 * The filter of a live tail as a predicate, deciding as the same filter decides in a search.
 * The time range is not looked at: a tail has none.
 *
 * @throws {ApiError} VALIDATION_ERROR for `searchMode=regex`: it has no linear-time matcher here.
 */
export function compileFilter(filter: LogFilter): EntryPredicate {
  const tests: EntryPredicate[] = [];
  if (filter.services.length > 0) {
    const services = new Set(filter.services);
    tests.push((entry) => services.has(entry.service));
  }
  if (filter.levels.length > 0 && filter.levels.length < LEVELS.length) {
    const levels = new Set(filter.levels);
    tests.push((entry) => levels.has(entry.level));
  }
  if (filter.notServices.length > 0) {
    const services = new Set(filter.notServices);
    tests.push((entry) => !services.has(entry.service));
  }
  if (filter.notLevels.length > 0) {
    const levels = new Set(filter.notLevels);
    tests.push((entry) => !levels.has(entry.level));
  }
  tests.push(...compileTexts(filter));
  if (filter.traceId !== undefined) {
    const wanted = normaliseTrace(filter.traceId);
    tests.push((entry) => entry.traceId !== undefined && normaliseTrace(entry.traceId) === wanted);
  }
  for (const { path, values } of filter.metadata) tests.push(compileMetadata(path, new Set(values)));
  return (entry) => tests.every((test) => test(entry));
}

function compileTexts(filter: LogFilter): EntryPredicate[] {
  const mode = filter.text?.mode ?? 'fulltext';
  if (mode === 'regex') {
    throw new ApiError('VALIDATION_ERROR', {
      public: 'searchMode: expected fulltext or substring on a stream, got regex',
      details: [{ path: 'searchMode', message: 'expected fulltext or substring, got regex' }],
    });
  }
  const tests: EntryPredicate[] = [];
  if (filter.text !== undefined && asksForText(mode, filter.text.query)) {
    const matches = compileTextMatch(mode, filter.text.query);
    const whole = filter.text.query.trim();
    const trace = mode === 'fulltext' ? toTraceKey(whole) : undefined;
    tests.push(
      (entry) =>
        matches(entry.message) ||
        (trace !== undefined && entry.traceId !== undefined && normaliseTrace(entry.traceId) === trace),
    );
  }
  for (const query of filter.notTexts.filter((text) => asksForText(mode, text))) {
    const matches = compileTextMatch(mode, query);
    tests.push((entry) => !matches(entry.message));
  }
  return tests;
}

/** A text of nothing filters nothing, as in a search. */
function asksForText(mode: 'fulltext' | 'substring', query: string): boolean {
  return mode === 'substring' ? query !== '' : query.trim() !== '';
}

/** What two texts of the same trace have in common. */
function normaliseTrace(traceId: string): string {
  return toTraceKey(traceId) ?? traceId;
}

/** The path is tried as nested keys and as one literal key with dots; fractions compare by value, as in a search. */
function compileMetadata(path: string, values: ReadonlySet<string>): EntryPredicate {
  const keyPaths = splitMetadataPath(path);
  const numbers = new Set([...values].filter((value) => value.trim() !== '').map(Number));
  const isWanted = (found: unknown): boolean => {
    if (typeof found === 'string') return values.has(found);
    if (typeof found === 'number' && !Number.isSafeInteger(found)) return numbers.has(found);
    return values.has(JSON.stringify(found));
  };
  return (entry) =>
    entry.metadataJson !== '{}' &&
    readMetadataValues(parseMetadata(entry.metadataJson), keyPaths).some(isWanted);
}
