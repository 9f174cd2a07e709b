import { hash } from 'node:crypto';
import { readWindowSpec, SlidingWindow } from '@logpond/alerting/window';
import type { Transition, WindowSpec } from '@logpond/alerting/window';
import type { OutboxItem, WindowFields } from '@logpond/db/alert-windows';
import type { AlertRuleDocument } from '@logpond/db/rule-change';
import { parseDurationMs } from '@logpond/schema/duration';

/** Matching entries of one second that were received in one second. */
export type Counted = { second: number; receivedSecond: number; count: number };

/** The fields of a window's hash that are kept here; the others are the window's. */
const OWN_FIELDS = ['state', 'lastTriggeredAt', 'firedCount', 'notifiedAt', 'repeat'] as const;
type OwnFields = Partial<Record<(typeof OWN_FIELDS)[number], string>>;

/**
 * A rule in force with what it has counted. It is `ok` or `firing`, as its window says; each transition becomes an
 * item for the outbox. While it fires it is told again each `renotifyAfter` since it was told last.
 */
export class WatchedRule {
  #rule: AlertRuleDocument;
  #spec: WindowSpec | undefined;
  #window: SlidingWindow | undefined;
  /** Of the window, until it is needed. */
  #stored: Record<string, string>;
  readonly #own: OwnFields;
  readonly #changed = new Set<keyof OwnFields>();

  /** @param fields of its window's hash. */
  constructor(rule: AlertRuleDocument, fields: Readonly<Record<string, string>> = {}) {
    this.#rule = rule;
    this.#stored = { ...fields };
    this.#own = Object.fromEntries(
      OWN_FIELDS.flatMap((name) => (fields[name] === undefined ? [] : [[name, fields[name]]])),
    );
  }

  get rule(): AlertRuleDocument {
    return this.#rule;
  }

  /** How its window is cut; the same as long as it is this object. */
  get spec(): WindowSpec {
    this.#spec ??= readWindowSpec(this.#rule.condition);
    return this.#spec;
  }

  get isFiring(): boolean {
    return this.#own.state === 'firing';
  }

  /** Takes a change that leaves what is counted as it is, such as another name. */
  rename(rule: AlertRuleDocument): void {
    this.#rule = rule;
  }

  /** The same rule as it is from now on, with a window that begins anew; it still knows when it fired last. */
  beginAnew(rule: AlertRuleDocument): WatchedRule {
    const fresh = new WatchedRule(rule);
    const { lastTriggeredAt } = this.#own;
    if (lastTriggeredAt !== undefined) fresh.#set({ lastTriggeredAt });
    return fresh;
  }

  /** Counts matching entries. @returns what that changed, in order. */
  count(counted: Counted): OutboxItem[] {
    const transitions = this.#open().count(counted);
    return transitions.map((transition) => this.#pass(transition, counted.receivedSecond * 1_000));
  }

  /** Ends the buckets that are over, and reminds. @param nowMs of the rules' clock, ms since 1970. */
  tick(nowMs: number): OutboxItem[] {
    const transitions = this.#open().tick(Math.floor(nowMs / 1_000));
    const items = transitions.map((transition) => this.#pass(transition, nowMs));
    const reminder = this.#remind(nowMs);
    return reminder === undefined ? items : [...items, reminder];
  }

  /** The firing that ends because its rule does; undefined when it does not fire. */
  end(atMs: number): OutboxItem | undefined {
    if (!this.isFiring) return undefined;
    const window = this.#open();
    const startedAtMs = (window.startedAtS ?? 0) * 1_000;
    const resolvedAtMs = Math.max(startedAtMs, atMs);
    const { sum: count, peak } = window;
    const times = { startedAtMs, resolvedAtMs, atMs: resolvedAtMs };
    return this.#describe('resolved', { count, peak, ...times, isCutOff: true });
  }

  /** Fields that changed since the last call; undefined: none. */
  takeChanges(): WindowFields | undefined {
    const ofWindow = this.#window?.takeChanges();
    if (ofWindow === undefined && this.#changed.size === 0) return undefined;
    const set = { ...ofWindow?.set };
    const unset = [...(ofWindow?.unset ?? [])];
    for (const name of this.#changed) {
      const value = this.#own[name];
      if (value === undefined) unset.push(name);
      else set[name] = value;
    }
    this.#changed.clear();
    return { set, unset };
  }

  #open(): SlidingWindow {
    if (this.#window === undefined) {
      this.#window = new SlidingWindow(this.spec, this.#stored);
      this.#stored = {};
    }
    return this.#window;
  }

  #pass(transition: Transition, atMs: number): OutboxItem {
    const startedAtMs = transition.startedAtS * 1_000;
    const { count } = transition;
    if (transition.kind === 'resolved') {
      const resolvedAtMs = transition.resolvedAtS * 1_000;
      this.#set({ state: 'ok', notifiedAt: undefined, repeat: undefined });
      return this.#describe('resolved', {
        count,
        peak: transition.peak,
        startedAtMs,
        resolvedAtMs,
        atMs: resolvedAtMs,
      });
    }
    this.#set({
      state: 'firing',
      firedCount: String(count),
      lastTriggeredAt: String(startedAtMs),
      notifiedAt: String(atMs),
      repeat: undefined,
    });
    return this.#describe('fired', { count, peak: count, startedAtMs, resolvedAtMs: null, atMs });
  }

  #remind(nowMs: number): OutboxItem | undefined {
    const everyMs = parseDurationMs(this.#rule.renotifyAfter ?? '');
    const window = this.#open();
    if (everyMs === undefined || !this.isFiring || window.startedAtS === undefined) return undefined;
    // It is about to end: the bucket in which it fell below is only not over yet.
    if (window.sum < this.#rule.condition.threshold) return undefined;
    const startedAtMs = window.startedAtS * 1_000;
    const notifiedAtMs = Number(this.#own.notifiedAt ?? startedAtMs);
    if (nowMs < notifiedAtMs + everyMs) return undefined;
    const repeat = String(Number(this.#own.repeat ?? 0) + 1);
    this.#set({ notifiedAt: String(nowMs), repeat });
    const { sum: count, peak } = window;
    return this.#describe('renotified', { count, peak, startedAtMs, resolvedAtMs: null, atMs: nowMs });
  }

  #describe(
    kind: OutboxItem['kind'],
    facts: Pick<OutboxItem, 'count' | 'peak' | 'startedAtMs' | 'resolvedAtMs' | 'atMs' | 'isCutOff'>,
  ): OutboxItem {
    return {
      firingId: nameFiring(this.#rule, facts.startedAtMs),
      kind,
      repeat: kind === 'renotified' ? Number(this.#own.repeat ?? 0) : 0,
      projectId: this.#rule.projectId,
      rule: this.#rule,
      firedCount: Number(this.#own.firedCount ?? facts.peak),
      ...facts,
    };
  }

  #set(fields: { [Name in keyof OwnFields]: string | undefined }): void {
    for (const name of OWN_FIELDS) {
      if (!(name in fields)) continue;
      const value = fields[name];
      if (value === undefined) delete this.#own[name];
      else this.#own[name] = value;
      this.#changed.add(name);
    }
  }
}

/** UUID, version 8 (RFC 9562 §5.8): the same whenever the same firing is found. */
export function nameFiring({ id, generation }: AlertRuleDocument, startedAtMs: number): string {
  const hex = hash('sha256', `${id}:${generation}:${startedAtMs}`, 'hex');
  const variant = ((Number.parseInt(hex.charAt(16), 16) & 0x3) | 0x8).toString(16);
  const parts = [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `8${hex.slice(13, 16)}`,
    variant + hex.slice(17, 20),
    hex.slice(20, 32),
  ];
  return parts.join('-');
}
