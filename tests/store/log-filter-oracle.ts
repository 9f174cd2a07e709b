import { compileTextMatch } from '@logpond/db/full-text';
import { LEVELS } from '@logpond/schema/log-entry';
import type { CheckedEntry } from '@logpond/schema/log-entry';
import type { LogFilter } from '@logpond/schema/log-query';
import fc from 'fast-check';
import { NOW_NS } from './log-store-fixture.ts';

const TRACES = [
  '0af76519-16cd-43dd-8448-eb211c80319c',
  '0af7651916cd43dd8448eb211c80319c',
  '0AF7651916CD43DD8448EB211C80319C',
  '00000000-0000-0000-0000-000000000000',
  'req-1',
];
const SERVICES = ['api', 'db', "o'reilly", 'größe', 'a%b_c\\'];
const METADATA = [
  '{}',
  '{"host":"web-1","n":1.5,"ok":true,"nil":null}',
  '{"host":"web-2","n":15,"ok":false,"a":{"b":"x"}}',
  '{"a.b":"x","n":9007199254740993}',
  '{"a.b":"y","a":{"b":"x"},"host":"it\'s \\"q\\" \\\\ \\n"}',
  '{"n":12345678901234567890123,"host":"web-1"}',
  '{"note":"ids: 12345678901234567890123, and [98765432109876543210987]","n":12345678901234567890123,"host":"web-1"}',
  '{"n":[1e400,12345678901234567890123,-98765432109876543210987],"host":"web-2"}',
  '{"n":1234567890123456789.5e300,"host":"web-1"}',
  '{"n":17976931348623157000e290,"ok":[1.5e999,0e999,-1E+400],"host":"web-2"}',
  `{"ok":${'9'.repeat(310)}.5,"host":"web-1"}`,
  '{"host":["web-1"],"nil":"null"}',
];
const WORDS = [
  'disk',
  'Disk-Full',
  'GRÖSSE',
  'größe',
  'ΣΑΣ',
  'x_y',
  '100%',
  'a\\b',
  '=>',
  'timeout',
  'timeouts',
  '日本語',
  '"q"',
  'Naïve',
];

/** The value that a metadata filter compares, as the contract describes it. */
function readMetadata(json: string, path: string): unknown[] {
  const data = JSON.parse(json, (_, value, context?: { source?: string }) =>
    typeof value === 'number' && Number.isInteger(value) ? { digits: context?.source } : (value as unknown),
  ) as Record<string, unknown>;
  const nested = path
    .split('.')
    .reduce<unknown>(
      (value, key) =>
        typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[key] : undefined,
      data,
    );
  return [data[path], nested];
}

function isWanted(value: unknown, wanted: string): boolean {
  if (typeof value === 'number') {
    return /^-?[0-9.]+$/.test(wanted) && Number(wanted) === value;
  }
  if (typeof value === 'object' && value !== null) {
    return 'digits' in value ? value.digits === wanted : JSON.stringify(value) === wanted;
  }
  return typeof value === 'string' ? value === wanted : JSON.stringify(value) === wanted;
}

/** The contract's filters once more, in plain JavaScript. */
export function isMatch(entry: CheckedEntry, filter: LogFilter): boolean {
  const level = LEVELS[entry.level - 1] ?? 'debug';
  const text = filter.text;
  const canonical = (trace: string): string =>
    /^[0-9a-f-]{32,36}$/i.test(trace) ? trace.replaceAll('-', '').toLowerCase() : trace;
  const hasTrace = (trace: string): boolean =>
    entry.traceId !== undefined && canonical(entry.traceId) === canonical(trace);
  const hasText = (query: string): boolean => {
    if (text?.mode === 'regex') return new RegExp(query, 'u').test(entry.message);
    return compileTextMatch(text?.mode ?? 'fulltext', query)(entry.message);
  };
  return (
    (filter.fromNs === undefined || entry.timeNs >= filter.fromNs) &&
    (filter.toNs === undefined || entry.timeNs <= filter.toNs) &&
    (filter.services.length === 0 || filter.services.includes(entry.service)) &&
    (filter.levels.length === 0 || filter.levels.includes(level)) &&
    !filter.notServices.includes(entry.service) &&
    !filter.notLevels.includes(level) &&
    (text === undefined ||
      hasText(text.query) ||
      (text.mode === 'fulltext' && canonical(text.query).length === 32 && hasTrace(text.query))) &&
    !filter.notTexts.some((query) => query.trim() !== '' && hasText(query)) &&
    (filter.traceId === undefined || hasTrace(filter.traceId)) &&
    filter.metadata.every(({ path, values }) =>
      readMetadata(entry.metadataJson, path).some((value) =>
        values.some((wanted) => isWanted(value, wanted)),
      ),
    )
  );
}

const some = <Value>(...values: Value[]): fc.Arbitrary<Value[]> => fc.subarray(values, { maxLength: 2 });
const rarely = <Value>(value: fc.Arbitrary<Value>): fc.Arbitrary<Value | undefined> =>
  fc.option(value, { nil: undefined, freq: 1 });
const words = fc
  .array(fc.constantFrom(...WORDS), { minLength: 1, maxLength: 3 })
  .map((list) => list.join(' '));
const queryText = fc.oneof(
  words,
  words.map((text) => `"${text}"`),
  words.map((text) => text.toUpperCase()),
  fc.constantFrom(...TRACES),
);
const regex = fc.constantFrom('^Disk', '(?:full|FULL)', 'time.uts?$', '\\\\b', '.', '[äöüÖ]');

/** Filters over what `sentEntry` holds, so that many of them find something. */
export const filters: fc.Arbitrary<LogFilter> = fc
  .record({
    fromNs: rarely(fc.bigInt({ min: 0n, max: 400n }).map((minutes) => NOW_NS - minutes * 60_000_000_000n)),
    toNs: rarely(fc.bigInt({ min: 0n, max: 400n }).map((minutes) => NOW_NS - minutes * 60_000_000_000n)),
    services: some(...SERVICES),
    levels: some(...LEVELS),
    notServices: some(...SERVICES),
    notLevels: some(...LEVELS),
    text: rarely(
      fc.oneof(
        fc.record({ mode: fc.constantFrom('fulltext' as const, 'substring' as const), query: queryText }),
        fc.record({ mode: fc.constant('regex' as const), query: regex }),
      ),
    ),
    notTexts: fc.array(fc.constantFrom(...WORDS.filter((word) => !/[\\%]/.test(word))), { maxLength: 1 }),
    traceId: rarely(fc.constantFrom(...TRACES, 'none')),
    metadata: fc.array(
      fc.record({
        path: fc.constantFrom('host', 'n', 'ok', 'nil', 'a.b', 'zz'),
        values: some(
          'web-1',
          'it\'s "q" \\ \n',
          '1.5',
          '1.50',
          '15',
          '9007199254740993',
          '12345678901234567890123',
          'true',
          'null',
          'x',
          'y',
        ),
      }),
      { maxLength: 1 },
    ),
  })
  .map(({ metadata, ...rest }) => {
    const isAbsent = (value: unknown): boolean => value === undefined;
    const present = Object.fromEntries(Object.entries(rest).filter(([, value]) => !isAbsent(value)));
    return { ...present, metadata: metadata.filter(({ values }) => values.length > 0) } as LogFilter;
  });

/** Entries with few different values in each field. */
export const sentEntry: fc.Arbitrary<CheckedEntry> = fc.record({
  timeNs: fc.bigInt({ min: 0n, max: 400n }).map((minutes) => NOW_NS - minutes * 60_000_000_000n),
  level: fc.integer({ min: 1, max: 5 }),
  service: fc.constantFrom(...SERVICES),
  message: fc.array(fc.constantFrom(...WORDS), { maxLength: 5 }).map((list) => list.join(' ')),
  metadataJson: fc.constantFrom(...METADATA),
  traceId: rarely(fc.constantFrom(...TRACES)),
});
