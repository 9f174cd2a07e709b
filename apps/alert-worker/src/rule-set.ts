import { ProjectMatcher } from '@logpond/alerting/matcher';
import { PatternAllowance } from '@logpond/alerting/pattern-allowance';
import { readWindowSpec } from '@logpond/alerting/window';
import type { RuleInForce } from '@logpond/db/alert-windows';
import type { AlertRuleDocument, RuleChange } from '@logpond/db/rule-change';
import { readCpuMs } from './cpu-clock.ts';
import { WatchedRule } from './watched-rule.ts';

/** Deleted rules that are remembered, so that a change of theirs that comes late does not bring them back. */
const DELETED_MAX = 10_000;
/** Projects with patterns whose allowances are kept when their rules change; more begin with a full one again. */
const ALLOWANCES_MAX = 10_000;

/** The enabled rules of one project; the matcher speaks of them by their index. */
export type ProjectRules = { matcher: ProjectMatcher; rules: readonly WatchedRule[] };

/** What a change did to the rule; a window that begins anew, or goes, is `dropped`. */
export type AppliedChange = {
  dropped: WatchedRule | undefined;
  /** The rule as it is watched from now on; undefined when it is gone. */
  current: WatchedRule | undefined;
  /** What is counted has changed, and not only a name or recipients: to compile a project anew is dear. */
  isRecounted: boolean;
};

/**
 * The rules of a shard's projects as they are at a place in the stream, with what each has counted. Rules of a
 * project are compiled when its first entry comes.
 */
export class RuleSet {
  readonly #byProject = new Map<string, Map<string, WatchedRule>>();
  readonly #projectOf = new Map<string, string>();
  readonly #compiled = new Map<string, ProjectRules | undefined>();
  readonly #deleted = new Map<string, number>();
  readonly #allowances = new Map<string, PatternAllowance>();
  readonly #onBroken: (rule: AlertRuleDocument, error: unknown) => void;
  readonly #cpuMs: () => number;

  /**
   * @param onBroken is told of each rule that cannot be compiled; it matches nothing.
   * @param cpuMs time that this thread has worked, for the patterns' allowances.
   */
  constructor(
    inForce: readonly RuleInForce[],
    onBroken: (rule: AlertRuleDocument, error: unknown) => void = () => {},
    cpuMs: () => number = readCpuMs,
  ) {
    this.#onBroken = onBroken;
    this.#cpuMs = cpuMs;
    for (const { rule, fields } of inForce) this.#put(new WatchedRule(rule, fields));
  }

  /** Rules that fire, in no order. */
  *firing(): Generator<WatchedRule> {
    for (const rules of this.#byProject.values()) {
      for (const rule of rules.values()) if (rule.isFiring) yield rule;
    }
  }

  /** Version of each rule, by its id. */
  versions(): Map<string, { version: number; projectId: string }> {
    const versions = new Map<string, { version: number; projectId: string }>();
    for (const [projectId, rules] of this.#byProject) {
      for (const [id, { rule }] of rules) versions.set(id, { version: rule.version, projectId });
    }
    return versions;
  }

  /** Whether a rule of this version, or a later one, was seen here; a deletion is one too. */
  hasSeen(ruleId: string, version: number): boolean {
    return version <= Math.max(this.#find(ruleId)?.rule.version ?? 0, this.#deleted.get(ruleId) ?? 0);
  }

  /** The enabled rules of a project; undefined when there are none. */
  ofProject(projectId: string): ProjectRules | undefined {
    const known = this.#compiled.get(projectId);
    if (known !== undefined || !this.#byProject.has(projectId)) return known;
    if (this.#compiled.has(projectId)) return undefined;
    const compiled = this.#compile(projectId);
    this.#compiled.set(projectId, compiled);
    return compiled;
  }

  /** Takes a change. Undefined: it is older than what is known, and nothing changed. */
  apply(change: RuleChange): AppliedChange | undefined {
    const applied = change.op === 'put' ? this.#applyPut(change.rule) : this.#applyDelete(change);
    if (applied?.isRecounted === true)
      this.#compiled.delete(change.op === 'put' ? change.rule.projectId : change.projectId);
    return applied;
  }

  #applyPut(rule: AlertRuleDocument): AppliedChange | undefined {
    if (this.hasSeen(rule.id, rule.version)) return undefined;
    const before = this.#find(rule.id);
    if (before === undefined) {
      const current = new WatchedRule(rule);
      this.#put(current);
      return { dropped: undefined, current, isRecounted: true };
    }
    if (before.rule.generation === rule.generation && before.rule.enabled === rule.enabled) {
      before.rename(rule);
      return { dropped: undefined, current: before, isRecounted: false };
    }
    const current = before.beginAnew(rule);
    this.#put(current);
    return { dropped: before, current, isRecounted: true };
  }

  #applyDelete({ ruleId, version }: Extract<RuleChange, { op: 'delete' }>): AppliedChange | undefined {
    const before = this.#find(ruleId);
    if (before !== undefined && version < before.rule.version) return undefined;
    this.#deleted.delete(ruleId);
    this.#deleted.set(ruleId, version);
    const oldest = this.#deleted.keys().next();
    if (this.#deleted.size > DELETED_MAX && oldest.done !== true) this.#deleted.delete(oldest.value);
    if (before === undefined) return undefined;
    const { projectId } = before.rule;
    const rules = this.#byProject.get(projectId);
    rules?.delete(ruleId);
    if (rules?.size === 0) this.#byProject.delete(projectId);
    this.#projectOf.delete(ruleId);
    return { dropped: before, current: undefined, isRecounted: true };
  }

  #find(ruleId: string): WatchedRule | undefined {
    return this.#byProject.get(this.#projectOf.get(ruleId) ?? '')?.get(ruleId);
  }

  #put(watched: WatchedRule): void {
    const { id, projectId } = watched.rule;
    let rules = this.#byProject.get(projectId);
    if (rules === undefined) {
      rules = new Map();
      this.#byProject.set(projectId, rules);
    }
    rules.set(id, watched);
    this.#projectOf.set(id, projectId);
  }

  #compile(projectId: string): ProjectRules | undefined {
    const enabled = [...(this.#byProject.get(projectId)?.values() ?? [])].filter(({ rule }) => rule.enabled);
    const allowance = this.#openAllowance(projectId, enabled);
    const compiled = tryCompile(enabled, allowance);
    if (!(compiled instanceof Error)) return compiled;
    const sound = enabled.filter((watched) => {
      const alone = tryCompile([watched]);
      if (alone instanceof Error) this.#onBroken(watched.rule, alone);
      return !(alone instanceof Error);
    });
    const rest = tryCompile(sound, allowance);
    if (!(rest instanceof Error)) return rest;
    // Too large together: the limits of rules do not allow it, but it must not stop the other projects either.
    for (const { rule } of sound) this.#onBroken(rule, rest);
    return undefined;
  }

  /** It outlives changes of the rules: a change must not fill it. */
  #openAllowance(projectId: string, enabled: readonly WatchedRule[]): PatternAllowance | undefined {
    if (!enabled.some(({ rule }) => rule.condition.operator === 'regex')) return undefined;
    const allowance = this.#allowances.get(projectId) ?? new PatternAllowance(this.#cpuMs);
    this.#allowances.delete(projectId);
    this.#allowances.set(projectId, allowance);
    const oldest = this.#allowances.keys().next();
    if (this.#allowances.size > ALLOWANCES_MAX && oldest.done !== true) this.#allowances.delete(oldest.value);
    return allowance;
  }
}

/** What is wrong comes back as an error: rules come from customers, and one must not stop the others. */
function tryCompile(
  rules: readonly WatchedRule[],
  allowance?: PatternAllowance,
): ProjectRules | undefined | Error {
  if (rules.length === 0) return undefined;
  try {
    for (const { rule } of rules) readWindowSpec(rule.condition);
    return {
      matcher: new ProjectMatcher(
        rules.map(({ rule }) => rule),
        allowance,
      ),
      rules,
    };
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}
