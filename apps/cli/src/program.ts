import type { Level } from '@logpond/schema/log-entry';
import { Command, InvalidArgumentError, Option } from 'commander';
import { EXIT } from './cli-error.ts';
import { readConnection, wantsColour } from './config.ts';
import { watchInterrupt } from './interrupt.ts';
import { LEVEL_NAMES } from './level-names.ts';
import { listSources } from './line-source.ts';
import type { LogFilterOptions } from './log-filter.ts';
import { toQuery } from './log-filter.ts';
import { addField, addValue, readCount, readDuration } from './option-values.ts';
import type { LineFormat } from './read-line.ts';
import { LINE_FORMATS } from './read-line.ts';
import { renderEntry } from './render-entry.ts';
import { countEntries, searchPages } from './search.ts';
import type { SendOptions } from './send.ts';
import { exitCodeOf, formatReport, sendLines } from './send.ts';
import { tailLogs } from './tail.ts';

const RETRY_FOR_DEFAULT = '10m';
const CONCURRENCY_MAX = 32;
const HISTORY_MAX = 1000;

type Field = readonly [string, string];
type SendFlags = {
  service?: string;
  level: Level;
  field?: Field[];
  format: LineFormat;
  fromNow?: boolean;
  keepTime?: boolean;
  utc?: boolean;
  concurrency: number;
  retryFor: number;
};
type FilterFlags = {
  service?: string[];
  level?: string[];
  field?: Field[];
  trace?: string;
  mode?: string;
  from?: string;
  to?: string;
};
type SearchFlags = FilterFlags & { limit: number; all?: boolean; count?: boolean; json?: boolean };
type TailFlags = FilterFlags & { lines: number; json?: boolean };

/** The whole command line; parsing it runs the chosen command. Usage errors are thrown as CommanderError. */
export function createProgram(): Command {
  const program = new Command('logpond')
    .description('Send, search and follow log entries of a Logpond service.')
    .addHelpText(
      'after',
      `
The service: LOGPOND_URL and LOGPOND_API_KEY, else .logpond/credentials.json of the checkout (LOGPOND_DATA_DIR moves it).
Colours: on a terminal, unless NO_COLOR is set.
Exit codes: 0 all done, 1 something was rejected or not confirmed, 2 wrong usage, 3 cannot connect or not allowed.`,
    )
    .exitOverride();
  addSend(program);
  addSearch(program);
  addTail(program);
  return program;
}

function addSend(program: Command): void {
  const readRetryFor = readDuration('50m');
  program
    .command('send')
    .description('send the lines of files (also .gz) or of standard input; every line becomes a log entry')
    .argument('[files...]', 'files to read; none or - is standard input')
    .option(
      '-s, --service <name>',
      'service of every entry (default: the one in the line, else the file name)',
      readService,
    )
    .addOption(
      new Option('-l, --level <level>', 'level of lines that show none').choices(LEVEL_NAMES).default('info'),
    )
    .option('-f, --field <key=value>', 'metadata for every entry, repeatable', addField)
    .addOption(new Option('--format <format>', 'how to read lines').choices(LINE_FORMATS).default('auto'))
    .option('--from-now', 'give entries the time of reading; their own is kept as metadata.original_time')
    .option(
      '--keep-time',
      'reject entries outside the accepted time instead of sending them with the time of now',
    )
    .option('--utc', 'plain times without an offset are UTC (default: the time zone of this machine)')
    .option(
      '--concurrency <n>',
      'batches in flight; 1 keeps the order of lines with equal times',
      readCount(1, CONCURRENCY_MAX),
      4,
    )
    .addOption(
      new Option('--retry-for <duration>', 'how long to retry a batch, at most 50m')
        .argParser(readRetryFor)
        .default(readRetryFor(RETRY_FOR_DEFAULT), RETRY_FOR_DEFAULT),
    )
    .action(runSend);
}

async function runSend(files: string[], flags: SendFlags): Promise<void> {
  let skippedCount = 0;
  const sources = listSources(files, (sentence) => {
    skippedCount++;
    process.stderr.write(`logpond: ${sentence}\n`);
  });
  const connection = readConnection();
  if (sources.some((source) => !source.isFile) && process.stdin.isTTY) {
    process.stderr.write('logpond: reading from the terminal; Ctrl-D ends the input\n');
  }
  const options: SendOptions = {
    format: flags.format,
    service: flags.service,
    level: flags.level,
    fields: flags.field ?? [],
    isFromNow: flags.fromNow === true,
    isUtc: flags.utc === true,
    keepsTime: flags.keepTime === true,
    concurrency: flags.concurrency,
    retryForMs: flags.retryFor,
  };
  const report = await sendLines(connection, sources, options, watchInterrupt());
  if (report.failure) process.stderr.write(`logpond: ${report.failure.message}\n`);
  process.stderr.write(`${formatReport(report)}\n`);
  process.exitCode = exitCodeOf(report) || (skippedCount > 0 ? EXIT.incomplete : EXIT.ok);
}

function addSearch(program: Command): void {
  addFilterOptions(program.command('search').description('find log entries, newest first'))
    .option('--from <time>', 'start: a time, or a duration before now such as 15m')
    .option('--to <time>', 'end, likewise')
    .option('-n, --limit <n>', 'at most so many entries', readCount(1, 10_000_000), 100)
    .option('--all', 'every entry that matches')
    .option('--count', 'print the number of matching entries only')
    .option('--json', 'print entries as JSON, one a line')
    .action(async (words: string[], flags: SearchFlags) => {
      const nowMs = Date.now();
      const query = toQuery(toFilter(words, flags), nowMs);
      const connection = readConnection();
      const signal = watchInterrupt();
      if (flags.count) {
        process.stdout.write(`${await countEntries(connection, query, nowMs, signal)}\n`);
        return;
      }
      const write = createEntryWriter(flags.json);
      const limit = flags.all ? Infinity : flags.limit;
      for await (const entries of searchPages(connection, query, limit, signal))
        for (const entry of entries) write(entry);
    });
}

function addTail(program: Command): void {
  addFilterOptions(
    program.command('tail').description('show the latest log entries, then follow new ones until Ctrl-C'),
  )
    .option('-n, --lines <n>', 'entries of history first', readCount(0, HISTORY_MAX), 10)
    .option('--json', 'print entries as JSON, one a line')
    .action(async (words: string[], flags: TailFlags) => {
      const query = toQuery(toFilter(words, flags), Date.now());
      const output = {
        writeEntry: createEntryWriter(flags.json),
        writeNotice: (sentence: string) => void process.stderr.write(`logpond: ${sentence}\n`),
      };
      await tailLogs(readConnection(), query, { historyMax: flags.lines }, output, watchInterrupt());
    });
}

function addFilterOptions(command: Command): Command {
  return command
    .argument('[words...]', 'words that the message must contain; "\\"a phrase\\"" in quotes')
    .option('-s, --service <name>', 'only this service, repeatable', addValue)
    .option('-l, --level <level>', 'only this level, repeatable', addValue)
    .option(
      '-f, --field <path=value>',
      'only entries whose metadata has this value, repeatable',
      addField,
      [],
    )
    .option('--trace <id>', 'only entries of this trace')
    .addOption(
      new Option(
        '--mode <mode>',
        'how to read the words: whole words (fulltext, the default), any part of the message, or RE2',
      ).choices(['fulltext', 'substring', 'regex']),
    );
}

function toFilter(words: string[], flags: FilterFlags): LogFilterOptions {
  const { service = [], level = [], field = [], trace, mode, from, to } = flags;
  return { words, services: service, levels: level, fields: field, trace, mode, from, to };
}

function createEntryWriter(isJson = false): (entryJson: string) => void {
  const isColoured = wantsColour(process.stdout);
  return (entryJson) =>
    void process.stdout.write(`${isJson ? entryJson : renderEntry(entryJson, isColoured)}\n`);
}

function readService(text: string): string {
  const length = Array.from(text).length;
  if (length < 1 || length > 100)
    throw new InvalidArgumentError(`Expected 1 to 100 characters, got ${length}.`);
  return text;
}
