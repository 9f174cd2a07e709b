import { setTimeout as delay } from 'node:timers/promises';
import type { RuleDraft, SentEntry } from './alert-api.ts';
import { renderCondition } from './alert-conditions.ts';
import { makeEntry, makeRule } from './alert-random-rules.ts';
import type { AlertRig } from './alert-rig.ts';
import { createRandom, pickInteger } from './random.ts';
import type { Random } from './random.ts';
import type { OwnedTenant } from './rig-tenants.ts';

const BATCH_ENTRIES_MAX = 40;
/** Longer than the test takes: the sum is then all that was ever counted. */
const WINDOW = '3h';
/** Between two actions of a client, so that the clients' requests mix. */
const PAUSE_MS_MAX = 30;

/** What a client that does one thing after the other knows of a rule: it counts its entries `[from, to)`. */
export type KnownRule = {
  tenant: OwnedTenant;
  id: string;
  draft: RuleDraft;
  from: number;
  /** Undefined: it was never deleted. */
  to: number | undefined;
};

export type CrowdOptions = {
  tenants: readonly OwnedTenant[];
  rulesPerTenant: number;
  seed: number;
};

/**
 * For each project one client that does one thing after the other: it sends entries, numbered in their metadata,
 * makes rules, and deletes half of them again. So it knows for each entry and rule whether the one counts the other.
 */
export async function runCrowd(
  own: AlertRig,
  { tenants, rulesPerTenant, seed }: CrowdOptions,
): Promise<KnownRule[]> {
  const known = await Promise.all(
    tenants.map(async (tenant, index) => runClient(own, tenant, rulesPerTenant, createRandom(seed + index))),
  );
  return known.flat();
}

async function runClient(
  { alerts }: AlertRig,
  tenant: OwnedTenant,
  rules: number,
  random: Random,
): Promise<KnownRule[]> {
  const known: KnownRule[] = [];
  let sent = 0;
  const send = async (): Promise<void> => {
    const count = pickInteger(random, 1, BATCH_ENTRIES_MAX);
    await alerts.send(
      tenant,
      Array.from({ length: count }, (_, index) => numberEntry(random, sent + index)),
    );
    sent += count;
  };
  const actions = planActions(random, rules);
  for (const action of actions) {
    await delay(random() * PAUSE_MS_MAX);
    await send();
    if (action === 'create') {
      const draft = draftRule(random, known.length);
      const id = await alerts.createRule(tenant, draft);
      known.push({ tenant, id, draft, from: sent, to: undefined });
    } else {
      const alive = known.filter(({ to }) => to === undefined);
      const victim = alive[Math.floor(random() * alive.length)];
      if (victim === undefined) continue;
      await alerts.deleteRule(tenant, victim.id);
      victim.to = sent;
    }
  }
  await send();
  return known;
}

/** Creations, and half as many deletions among them. */
function planActions(random: Random, rules: number): ('create' | 'delete')[] {
  const actions: ('create' | 'delete')[] = [];
  for (let created = 0; created < rules; created += 1) {
    actions.push('create');
    if (created % 2 === 1) actions.splice(pickInteger(random, created, actions.length), 0, 'delete');
  }
  return actions;
}

function draftRule(random: Random, number: number): RuleDraft {
  const draft = makeRule(random, `rule ${number}`, { entries: 1, everyS: 1 });
  return {
    ...draft,
    condition: { ...draft.condition, timeWindow: WINDOW, threshold: pickInteger(random, 1, 3) },
  };
}

/** It comes at once: neither its time nor the window keeps it from being counted. */
function numberEntry(random: Random, number: number): SentEntry {
  const { time: _time, metadata, ...entry } = makeEntry(random, Date.now());
  return { ...entry, metadata: { ...metadata, number } };
}

export type CrowdVerdict = {
  rules: number;
  deleted: number;
  matching: number;
  fired: number;
  faults: string[];
};

/**
 * Compares what each rule has counted with what its client knows: by the counter of a rule that still counts, and by
 * the greatest sum of a firing that its deletion ended.
 */
export async function judgeCrowd(own: AlertRig, known: readonly KnownRule[]): Promise<CrowdVerdict> {
  const verdict: CrowdVerdict = { rules: known.length, deleted: 0, matching: 0, fired: 0, faults: [] };
  const peaks = await readPeaks(own, known);
  for (const rule of known) {
    const expected = await countMatching(own, rule);
    const { threshold } = rule.draft.condition;
    const peak = peaks.get(rule.id);
    const isOver = rule.to !== undefined;
    verdict.matching += expected;
    verdict.deleted += isOver ? 1 : 0;
    verdict.fired += peak === undefined ? 0 : 1;
    if ((peak !== undefined) !== expected >= threshold)
      verdict.faults.push(
        `${rule.id}: ${expected} entries match, threshold ${threshold}, and it ${peak === undefined ? 'did not fire' : 'fired'}`,
      );
    const counted = isOver ? peak : await own.readCounted(rule.tenant, rule.id);
    if (isOver && peak === undefined) continue;
    if (counted !== expected)
      verdict.faults.push(
        `${rule.id} ${JSON.stringify(rule.draft.condition)} [${rule.from}, ${rule.to ?? ''}): ${expected} entries match, ${counted} were counted`,
      );
  }
  return verdict;
}

async function readPeaks({ rig }: AlertRig, known: readonly KnownRule[]): Promise<Map<string, number>> {
  const projects = [...new Set(known.map(({ tenant }) => tenant.projectId))];
  const rows = await rig.selectRows<{ id: string; peak: string }>(
    `SELECT toString(rule_id) AS id, toString(max(peak)) AS peak FROM alert_firings FINAL
     WHERE project_id IN {projects:Array(UUID)} GROUP BY rule_id`,
    { projects },
  );
  return new Map(rows.map(({ id, peak }) => [id, Number(peak)]));
}

async function countMatching({ rig }: AlertRig, { tenant, draft, from, to }: KnownRule): Promise<number> {
  const { condition, service } = draft;
  const { sql, params } = renderCondition(condition, service);
  const [row] = await rig.selectRows<{ entries: string }>(
    `SELECT toString(count()) AS entries FROM logs WHERE project_id = {project:UUID} AND (${sql})
       AND JSONExtractUInt(metadata, 'number') >= {from:UInt64} AND JSONExtractUInt(metadata, 'number') < {to:UInt64}`,
    { ...params, project: tenant.projectId, from, to: to ?? 2 ** 40 },
  );
  return Number(row?.entries);
}
