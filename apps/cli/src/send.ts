import { addAbortSignal } from 'node:stream';
import type { Level } from '@logpond/schema/log-entry';
import { BATCH_BOUNDS, BatchSender } from './batch-sender.ts';
import { CliError, EXIT } from './cli-error.ts';
import type { Connection } from './config.ts';
import type { DeliveryContext } from './deliver-batch.ts';
import type { LineSource } from './line-source.ts';
import type { RawLine } from './line-splitter.ts';
import { LineSplitter } from './line-splitter.ts';
import type { OutgoingEntry } from './outgoing-entry.ts';
import type { LineFormat } from './read-line.ts';
import { readLine } from './read-line.ts';
import { TimeWindow } from './time-window.ts';

export type SendOptions = {
  format: LineFormat;
  service: string | undefined;
  level: Level;
  fields: readonly (readonly [string, string])[];
  isFromNow: boolean;
  isUtc: boolean;
  keepsTime: boolean;
  concurrency: number;
  retryForMs: number;
};

export type SendReport = {
  linesRead: number;
  linesCut: number;
  entries: number;
  sent: number;
  rejected: number;
  retried: number;
  redated: number;
  seconds: number;
  failure: CliError | undefined;
};

const REASONS_SHOWN_MAX = 5;
const INHERIT_MAX_MS = 1000;

type Run = { sender: BatchSender; options: SendOptions; report: SendReport; interrupt: AbortSignal };

/**
 * Sends every line of the sources and says what became of them. `interrupt` stops reading; what was
 * read by then is still sent. Never throws for the service: its failure is in the report.
 */
export async function sendLines(
  connection: Connection,
  sources: readonly LineSource[],
  options: SendOptions,
  interrupt: AbortSignal,
): Promise<SendReport> {
  const startedMs = performance.now();
  const counts = { sent: 0, rejected: 0, retried: 0, redated: 0 };
  const report: SendReport = {
    linesRead: 0,
    linesCut: 0,
    entries: 0,
    ...counts,
    seconds: 0,
    failure: undefined,
  };
  const cancel = new AbortController();
  const context: DeliveryContext = {
    connection,
    window: new TimeWindow(() => performance.now()),
    counts,
    retryForMs: options.retryForMs,
    keepsTime: options.keepsTime,
    signal: cancel.signal,
    reportReason: createReasonReporter(),
    hasContact: false,
  };
  const sender = new BatchSender(context, { ...BATCH_BOUNDS, inFlightMax: options.concurrency });
  try {
    for (const source of sources) await sendSource(source, { sender, options, report, interrupt });
    await sender.drain();
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    report.failure = error;
    cancel.abort(error);
  }
  return { ...report, ...counts, seconds: (performance.now() - startedMs) / 1000 };
}

/** The one line at the end. */
export function formatReport(report: SendReport): string {
  const parts = [
    `read ${report.linesRead} lines`,
    `sent ${report.sent} entries`,
    `rejected ${report.rejected}`,
    `retried ${report.retried} requests`,
  ];
  const lost = report.entries - report.sent - report.rejected;
  if (lost > 0) parts.splice(2, 0, `NOT CONFIRMED ${lost}`);
  if (report.linesCut > 0) parts.push(`cut ${report.linesCut} overlong lines into several entries`);
  if (report.redated > 0)
    parts.push(`re-dated ${report.redated} outside the accepted time (kept as metadata.original_time)`);
  const perSecond = Math.round(report.sent / Math.max(report.seconds, 0.001));
  return `logpond: ${parts.join(', ')}, ${report.seconds.toFixed(1)} s, ${perSecond} entries/s`;
}

/** 0 when every entry read was stored; see EXIT. */
export function exitCodeOf(report: SendReport): number {
  if (report.failure)
    return report.failure.exitCode === EXIT.usage ? EXIT.incomplete : report.failure.exitCode;
  return report.rejected > 0 || report.sent < report.entries ? EXIT.incomplete : EXIT.ok;
}

async function sendSource(source: LineSource, run: Run): Promise<void> {
  if (run.interrupt.aborted) return;
  const input = source.open();
  addAbortSignal(run.interrupt, input);
  const splitter = new LineSplitter();
  const sendRead = createLineReader(source, run);
  try {
    for await (const chunk of input) await sendRead(splitter.push(chunk as Buffer));
  } catch (error) {
    if (error instanceof CliError) throw error;
    if (!run.interrupt.aborted) {
      throw new CliError(EXIT.incomplete, `cannot read ${source.name}: ${String(error)}`, { cause: error });
    }
  }
  await sendRead(splitter.finish());
}

function createLineReader(source: LineSource, run: Run): (lines: RawLine[]) => Promise<void> {
  const { options, report, sender } = run;
  const rules = { ...options, sourceService: source.service };
  let lastTime = source.initialTime;
  let lastTimedMs = 0;
  return async (lines) => {
    for (const line of lines) {
      const nowMs = Date.now();
      // A line without a time belongs to the timed one before it (a stack trace); from a pipe only if it came with it.
      const inherited = source.isFile || nowMs - lastTimedMs < INHERIT_MAX_MS ? lastTime : undefined;
      const { entries, ownTime } = readLine(line, rules, { nowMs, isUtc: options.isUtc }, inherited);
      if (ownTime !== undefined) [lastTime, lastTimedMs] = [ownTime, nowMs];
      if (line.part <= 1) report.linesRead++;
      if (line.part === 1 || (line.part === 0 && entries.length > 1)) report.linesCut++;
      for (const entry of entries) {
        report.entries++;
        await sender.add(entry, estimateBytes(entry, line));
      }
    }
  };
}

function estimateBytes(entry: OutgoingEntry, line: RawLine): number {
  // What the line itself holds is in message or metadata; three bytes a unit is the most UTF-8 takes.
  return 200 + 3 * Math.max(entry.message.length, line.part === 0 ? Math.min(line.text.length, 90_000) : 0);
}

function createReasonReporter(): (reason: string) => void {
  const shown = new Set<string>();
  return (reason) => {
    if (shown.size >= REASONS_SHOWN_MAX || shown.has(reason)) return;
    shown.add(reason);
    process.stderr.write(`logpond: rejected: ${reason}\n`);
  };
}
