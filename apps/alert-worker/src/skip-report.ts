import type { Log } from '@logpond/runtime/log';
import { declareCounter } from '@logpond/runtime/metrics';
import type { Skipped } from './step-builder.ts';

const LOG_EVERY_MS = 60_000;
/** Projects of which is known when they were told of last. */
const PROJECTS_MAX = 1_000;

/** Tells that patterns of a project were not asked: each entry in a metric, each project once a minute in the log. */
export class SkipReport {
  readonly #log: Log;
  readonly #elapsedMs: () => number;
  readonly #loggedAt = new Map<string, number>();

  /** @param elapsedMs milliseconds since any moment; never goes back. */
  constructor(log: Log, elapsedMs: () => number) {
    this.#log = log;
    this.#elapsedMs = elapsedMs;
  }

  add({ projectId, ruleIds, entries }: Skipped): void {
    skippedEntries.inc(entries);
    const nowMs = this.#elapsedMs();
    const loggedAt = this.#loggedAt.get(projectId);
    if (loggedAt !== undefined && nowMs < loggedAt + LOG_EVERY_MS) return;
    this.#loggedAt.delete(projectId);
    this.#loggedAt.set(projectId, nowMs);
    const oldest = this.#loggedAt.keys().next();
    if (this.#loggedAt.size > PROJECTS_MAX && oldest.done !== true) this.#loggedAt.delete(oldest.value);
    this.#log.error({ projectId, ruleIds }, 'patterns of a project take too long and are not asked');
  }
}

const skippedEntries = declareCounter('logpond_alert_skipped_pattern_entries_total', {
  help: 'Entries that a pattern was not asked about, as those of its project had spent their time; one that two were not asked about counts twice',
});
