import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { configSchema } from '@logpond/api/config';
import { openApi } from '@logpond/api/open';
import { readConfig } from '@logpond/runtime/env';
import { createLog } from '@logpond/runtime/log';
import { waitFor } from '../../support/wait.ts';
import { AlertApi } from './alert-api.ts';
import type { Preview, RuleDraft, SentEntry } from './alert-api.ts';
import { judgeAlerts } from './alert-judge.ts';
import type { AlertVerdict } from './alert-judge.ts';
import { makeEntry, makeRule } from './alert-random-rules.ts';
import type { AlertRig } from './alert-rig.ts';
import type { RuleLife } from './alert-spells.ts';
import { pickInteger } from './random.ts';
import type { Random } from './random.ts';
import type { OwnedTenant } from './rig-tenants.ts';

const DAY_MS = 86_400_000;
/** What lies between the end of the simulated day and now. */
const AFTER_MS = 600_000;
const QUIET_SHARE = 0.02;
const QUIET_FACTOR = 40;
const BATCH_ENTRIES_MAX = 40;
const KILLS = 3;
const PREVIEWS_AT_ONCE = 4;
/** Each rule may cross a hundred times. */
const REST_MS_MAX = 600_000;
/** The worker's clock is that of the entries, and some seconds late. */
const CLOCK_MS_MAX = 20_000;

export type PreviewOutcome = {
  rules: number;
  entries: number;
  /** By preview. */
  firings: number;
  /** Rules that fired at all. */
  rulesFired: number;
  /** Rules whose previewed firings are not those of the worker. */
  different: string[];
  verdict: AlertVerdict;
};

type Made = { tenant: OwnedTenant; id: string; draft: RuleDraft };

/**
 * Lets a day pass for an API whose clock is the test's, with entries that come in bursts, late, early and out of
 * order; then lets a real alert worker, killed a few times meanwhile, read what came. What each rule's preview says
 * of that day must be what the worker fired.
 */
export async function comparePreviews(
  own: AlertRig,
  options: { tenants: readonly OwnedTenant[]; rules: number; instants: number; random: Random },
): Promise<PreviewOutcome> {
  const { tenants, instants, random } = options;
  const beginMs = Date.now() - DAY_MS - AFTER_MS;
  let nowMs = beginMs;
  await using stack = new AsyncDisposableStack();
  const { app } = await openClockedApi(own, stack, () => nowMs);
  const api = new AlertApi('', async (url, init) => app.request(url, init));
  const made = await makeRules(api, options);
  let entries = 0;
  for (const pauseMs of planPauses(random, instants)) {
    nowMs += pauseMs;
    const batches = tenants.map((tenant) => ({ tenant, batch: makeBatch(random, nowMs) }));
    await Promise.all(batches.map(async ({ tenant, batch }) => api.send(tenant, batch)));
    entries += batches.reduce((sum, { batch }) => sum + batch.length, 0);
  }
  const endMs = Math.ceil(nowMs / 1_000) * 1_000 + 1_000;
  await countUnderKills(own, random);
  const previews = await askPreviews(own, made, beginMs, endMs);
  const different = await compareFired(own, made, previews, endMs);
  const lives = describeLives(made);
  const verdict = await judgeAlerts({ rig: own.rig, api: own.alerts, tenants, lives, nowMs: endMs });
  return {
    rules: made.length,
    entries,
    firings: previews.reduce((sum, { firings }) => sum + firings.length, 0),
    rulesFired: previews.filter(({ firings }) => firings.length > 0).length,
    different,
    verdict,
  };
}

async function makeRules(
  api: AlertApi,
  options: { tenants: readonly OwnedTenant[]; rules: number; instants: number; random: Random },
): Promise<Made[]> {
  const { tenants, rules, instants, random } = options;
  const everyS = DAY_MS / 1_000 / instants;
  const made: Made[] = [];
  for (let number = 0; number < rules; number += 1) {
    const tenant = tenants[number % tenants.length];
    if (tenant === undefined) throw new RangeError('expected a tenant');
    const draft = makeRule(random, `rule ${number}`, { entries: BATCH_ENTRIES_MAX / 2, everyS });
    made.push({ tenant, draft, id: await api.createRule(tenant, draft) });
  }
  return made;
}

/** Lets one worker after the other count, each for a moment, and the last one to the end. */
async function countUnderKills(own: AlertRig, random: Random): Promise<void> {
  for (let kill = 0; kill < KILLS; kill += 1) {
    own.startWorker();
    await delay(pickInteger(random, 600, 1_500));
    await own.killWorkers();
  }
  own.startWorker();
  await own.waitForRest(REST_MS_MAX);
}

function makeBatch(random: Random, nowMs: number): SentEntry[] {
  return Array.from({ length: pickInteger(random, 1, BATCH_ENTRIES_MAX) }, () => makeEntry(random, nowMs));
}

/** Milliseconds that make up the day; now and then one is far longer than the others: windows empty themselves. */
function planPauses(random: Random, instants: number): number[] {
  const parts = Array.from(
    { length: instants },
    () => random() * (random() < QUIET_SHARE ? QUIET_FACTOR : 1),
  );
  const sum = parts.reduce((a, b) => a + b, 0);
  return parts.map((part) => Math.floor((part / sum) * DAY_MS));
}

/** The API in this process, with a clock of its own, on the stores of a rig. */
async function openClockedApi(
  { rig }: AlertRig,
  stack: AsyncDisposableStack,
  now: () => number,
): ReturnType<typeof openApi> {
  const env = { ...rig.env, SETUP_TOKEN_FILE: join(tmpdir(), `logpond-clocked-${process.pid}`) };
  const api = await openApi(readConfig(configSchema, env), stack, createLog('clocked', 'silent'), now);
  await api.waitForSchema(AbortSignal.timeout(30_000));
  return api;
}

/** What the stream said of the rules is trimmed by now; each counted from its making on. */
function describeLives(made: readonly Made[]): Map<string, RuleLife> {
  return new Map(
    made.map(({ id, tenant, draft }) => {
      const rule = {
        ...draft,
        id,
        projectId: tenant.projectId,
        version: 1,
        generation: 1,
        notifications: [],
      };
      return [id, { rule, spells: [{ rule, after: 0, upTo: null }] }];
    }),
  );
}

type Firing = Preview['firings'][number];

/** Firings in order of time; what was resolved after the end counts as not resolved. */
function render(firings: readonly Firing[], endMs: number): string {
  const known = firings.map(({ startedAt, resolvedAt, peak }) => {
    const resolvedAtMs = resolvedAt === null ? Infinity : Date.parse(resolvedAt);
    return resolvedAtMs > endMs ? [startedAt, null, null] : [startedAt, resolvedAt, peak];
  });
  return JSON.stringify(known.toSorted(([a], [b]) => (String(a) < String(b) ? -1 : 1)));
}

/** Rules whose previewed firings are not those of the worker, once its clock has come to the end of the day too. */
async function compareFired(
  own: AlertRig,
  made: readonly Made[],
  previews: readonly Preview[],
  endMs: number,
): Promise<string[]> {
  const tenants = [...new Set(made.map(({ tenant }) => tenant))];
  const listDifferent = async (): Promise<string[]> => {
    const fired = await listFired(own, tenants, endMs);
    return made.flatMap(({ id, draft }, index) => {
      const ours = render(previews[index]?.firings ?? [], endMs);
      const theirs = fired.get(id) ?? '[]';
      return ours === theirs ? [] : [`${id} ${JSON.stringify(draft)}: preview ${ours}, worker ${theirs}`];
    });
  };
  let different = await listDifferent();
  await waitFor(
    'the worker to have fired what the previews say',
    async () => {
      different = await listDifferent();
      return different.length === 0;
    },
    CLOCK_MS_MAX,
  ).catch(() => {});
  return different;
}

async function listFired(
  { rig }: AlertRig,
  tenants: readonly OwnedTenant[],
  endMs: number,
): Promise<Map<string, string>> {
  type Row = { ruleId: string; started: string; resolved: string; peak: string };
  const rows = await rig.selectRows<Row>(
    `SELECT toString(rule_id) AS ruleId, toString(toUnixTimestamp64Milli(started_at)) AS started,
       if(isNull(resolved_at), '', toString(toUnixTimestamp64Milli(assumeNotNull(resolved_at)))) AS resolved,
       toString(peak) AS peak
     FROM alert_firings FINAL WHERE project_id IN {projects:Array(UUID)}`,
    { projects: tenants.map(({ projectId }) => projectId) },
  );
  const toText = (ms: string): string => new Date(Number(ms)).toISOString();
  const byRule = Map.groupBy(rows, ({ ruleId }) => ruleId);
  return new Map(
    [...byRule].map(([ruleId, ofRule]) => [
      ruleId,
      render(
        ofRule.map(({ started, resolved, peak }) => ({
          startedAt: toText(started),
          resolvedAt: resolved === '' ? null : toText(resolved),
          peak: Number(peak),
        })),
        endMs,
      ),
    ]),
  );
}

async function askPreviews(
  { alerts }: AlertRig,
  made: readonly Made[],
  beginMs: number,
  endMs: number,
): Promise<Preview[]> {
  const previews: Preview[] = [];
  for (let from = 0; from < made.length; from += PREVIEWS_AT_ONCE) {
    const part = made.slice(from, from + PREVIEWS_AT_ONCE);
    const asked = part.map(async ({ tenant, draft }) =>
      alerts.preview(tenant, draft, new Date(beginMs), new Date(endMs)),
    );
    previews.push(...(await Promise.all(asked)));
  }
  return previews;
}
