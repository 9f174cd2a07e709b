import { waitFor } from '../../support/wait.ts';
import type { AlertApi, ShownFiring } from './alert-api.ts';
import { recomputeCrossings } from './alert-crossings.ts';
import type { Crossing, Recomputed, Spell } from './alert-crossings.ts';
import { judgeMails } from './alert-mails.ts';
import type { JudgedMail } from './alert-mails.ts';
import { readLives } from './alert-spells.ts';
import type { RuleLife } from './alert-spells.ts';
import { shardKeys, shardOf } from '@logpond/db/shard-map';
import type { Rig } from './rig.ts';
import type { OwnedTenant } from './rig-tenants.ts';
import { KEY_PREFIX } from './rig-state.ts';

const FAULTS_MAX = 20;
/** A worker may end a bucket this late, by the blocks that may be under way and its own beat. */
const LATE_S_MAX = 15;
const QUERIES_AT_ONCE = 4;
const AGREE_MS_MAX = 10_000;

export type AlertVerdict = {
  rules: number;
  /** Crossings that are in ClickHouse's entries, by SQL. */
  crossings: number;
  lost: number;
  /** In the history, but not a crossing, or twice. */
  surplus: number;
  counted: number;
  mails: number;
  /** Mails that came again, with the same Message-ID. */
  repeatedMails: number;
  /** The first 20. */
  faults: string[];
};

export type AlertCase = {
  rig: Rig;
  api: AlertApi;
  tenants: readonly OwnedTenant[];
  /** Mails as they arrived; undefined: not judged. */
  mails?: readonly JudgedMail[];
  /** Instead of what the stream says of the rules. */
  lives?: ReadonlyMap<string, RuleLife>;
  /** Up to when the rules' clock has come at least; default: now. */
  nowMs?: number;
};

/** A firing as the history's table has it; times in ms since 1970. */
type StoredFiring = {
  id: string;
  ruleId: string;
  startedAtMs: number;
  resolvedAtMs: number | null;
  peak: number;
};

type Findings = AlertVerdict & { add: (fault: string) => void };

/**
 * Recomputes every firing of every rule from the entries in ClickHouse and compares: the history has each once and no
 * others, each reached its recipients, and each rule has counted as many entries as match it.
 */
export async function judgeAlerts(given: AlertCase): Promise<AlertVerdict> {
  const { rig, tenants } = given;
  const judgedProjects = new Set(tenants.map(({ projectId }) => projectId));
  const all = given.lives ?? (await readLives(rig.redis, rig.shards));
  const lives = [...all.values()].filter(({ rule }) => judgedProjects.has(rule.projectId));
  const stored = await readStoredFirings(rig, [...judgedProjects]);
  const nowS = Math.floor((given.nowMs ?? Date.now()) / 1_000);
  const findings = beginFindings(lives.length);
  const firings = new Map<string, { life: RuleLife; firing: StoredFiring }>();
  for (let from = 0; from < lives.length; from += QUERIES_AT_ONCE) {
    const part = lives.slice(from, from + QUERIES_AT_ONCE);
    await Promise.all(
      part.map(async (life) => {
        const found = stored.filter(({ ruleId }) => ruleId === life.rule.id);
        for (const firing of found) firings.set(firing.id, { life, firing });
        await judgeRule(rig, life, found, nowS, findings);
      }),
    );
  }
  const known = new Set(lives.map(({ rule }) => rule.id));
  for (const { id, ruleId } of stored)
    if (!known.has(ruleId)) findings.add(`firing ${id} is of no rule: ${ruleId}`);
  await compareApi(given, [...judgedProjects], findings);
  if (given.mails !== undefined) {
    const { repeated, faults } = judgeMails(given.mails, firings);
    findings.mails = given.mails.length;
    findings.repeatedMails = repeated;
    for (const fault of faults) findings.add(fault);
  }
  const { add: _add, ...verdict } = findings;
  return verdict;
}

function beginFindings(rules: number): Findings {
  const faults: string[] = [];
  const add = (fault: string): void => void (faults.length < FAULTS_MAX && faults.push(fault));
  return { rules, crossings: 0, lost: 0, surplus: 0, counted: 0, mails: 0, repeatedMails: 0, faults, add };
}

async function judgeRule(
  rig: Rig,
  life: RuleLife,
  found: readonly StoredFiring[],
  nowS: number,
  findings: Findings,
): Promise<void> {
  const expected: { crossing: Crossing; spell: Spell; recomputed: Recomputed }[] = [];
  for (const spell of life.spells) {
    const recomputed = await recomputeCrossings(rig, spell);
    expected.push(...recomputed.crossings.map((crossing) => ({ crossing, spell, recomputed })));
    if (spell.upTo === null) await compareCounted(rig, life, recomputed, findings);
    findings.counted += recomputed.counted;
  }
  findings.crossings += expected.length;
  // A rule that was changed may fire twice in one bucket; the one that ended first is that of the earlier spell.
  const rest = found.toSorted((a, b) => (a.resolvedAtMs ?? Infinity) - (b.resolvedAtMs ?? Infinity));
  for (const { crossing, spell } of expected) {
    const index = rest.findIndex(({ startedAtMs }) => startedAtMs === crossing.startedAtS * 1_000);
    const [firing] = index < 0 ? [] : rest.splice(index, 1);
    if (firing === undefined) {
      findings.lost += 1;
      findings.add(
        `rule ${life.rule.id}: lost the crossing ${render(crossing)}; the history has ${JSON.stringify(found)}`,
      );
      continue;
    }
    const difference = compareFiring(crossing, firing, spell, nowS);
    if (difference !== undefined)
      findings.add(
        `rule ${life.rule.id}: ${difference}; expected ${render(crossing)}, got ${JSON.stringify(firing)}`,
      );
  }
  findings.surplus += rest.length;
  for (const firing of rest)
    findings.add(
      `rule ${life.rule.id}: no crossing is ${JSON.stringify(firing)}; expected ${JSON.stringify(expected.map(({ crossing }) => crossing))}`,
    );
}

function render({ startedAtS, resolvedAtS, peak }: Crossing): string {
  return JSON.stringify({
    startedAtMs: startedAtS * 1_000,
    resolvedAtMs: resolvedAtS === null ? null : resolvedAtS * 1_000,
    peak,
  });
}

/** @returns what differs, or undefined. */
function compareFiring(
  crossing: Crossing,
  firing: StoredFiring,
  spell: Spell,
  nowS: number,
): string | undefined {
  const { resolvedAtS, startedAtS, peak } = crossing;
  const found = firing.resolvedAtMs === null ? null : firing.resolvedAtMs / 1_000;
  if (found === null) {
    if (spell.upTo !== null) return 'it fires for ever, though its rule ended';
    return resolvedAtS < nowS - LATE_S_MAX ? 'it was never resolved' : undefined;
  }
  if (firing.peak !== peak) return 'another peak';
  if (found === resolvedAtS) return undefined;
  // The end of a rule ends its firing, whenever that was.
  const isCut = spell.upTo !== null && found >= startedAtS && found <= resolvedAtS;
  return isCut ? undefined : 'resolved at another time';
}

/** The counter of a window that still counts, as it lies in Redis. */
async function compareCounted(
  rig: Rig,
  life: RuleLife,
  { counted }: Recomputed,
  findings: Findings,
): Promise<void> {
  const { id, projectId } = life.rule;
  const { window } = shardKeys(KEY_PREFIX, shardOf(projectId, rig.shards));
  const field = await rig.redis.hget(window(id), 'counted');
  if (Number(field ?? 0) !== counted)
    findings.add(`rule ${id}: counted ${field ?? 'nothing'}, ClickHouse has ${counted} matching entries`);
}

async function readStoredFirings(rig: Rig, projects: readonly string[]): Promise<StoredFiring[]> {
  const rows = await rig.selectRows<Record<'id' | 'ruleId' | 'started' | 'resolved' | 'peak', string>>(
    `SELECT toString(firing_id) AS id, toString(rule_id) AS ruleId,
       toString(toUnixTimestamp64Milli(started_at)) AS started,
       if(isNull(resolved_at), '', toString(toUnixTimestamp64Milli(assumeNotNull(resolved_at)))) AS resolved,
       toString(peak) AS peak
     FROM alert_firings FINAL WHERE project_id IN {projects:Array(UUID)}`,
    { projects },
  );
  return rows.map(({ id, ruleId, started, resolved, peak }) => ({
    id,
    ruleId,
    startedAtMs: Number(started),
    resolvedAtMs: resolved === '' ? null : Number(resolved),
    peak: Number(peak),
  }));
}

/** The API shows of each project what the table holds, each firing once. Rows may come between the two readings. */
async function compareApi(given: AlertCase, projects: readonly string[], findings: Findings): Promise<void> {
  let difference = '';
  await waitFor(
    'the API to show what the table holds',
    async () => {
      const inTable = (await readStoredFirings(given.rig, projects)).map(describeFiring);
      const shown: ShownFiring[] = [];
      for (const tenant of given.tenants) shown.push(...(await given.api.listHistory(tenant)));
      const inApi = shown.map(({ id, startedAt, resolvedAt }) => {
        const resolvedAtMs = resolvedAt === null ? null : Date.parse(resolvedAt);
        return describeFiring({ id, startedAtMs: Date.parse(startedAt), resolvedAtMs });
      });
      const [ours, theirs] = [inTable.toSorted(), inApi.toSorted()];
      const odd = theirs.find((one, index) => one !== ours[index]);
      difference = `the API shows ${theirs.length} firings, the table holds ${ours.length}: ${odd}`;
      return ours.join() === theirs.join();
    },
    AGREE_MS_MAX,
  ).catch(() => findings.add(difference));
}

function describeFiring({ id, startedAtMs, resolvedAtMs }: Omit<StoredFiring, 'ruleId' | 'peak'>): string {
  return `${id} from ${startedAtMs} to ${resolvedAtMs}`;
}
