import type { RuleDraft, SentEntry } from './alert-api.ts';
import { pickInteger } from './random.ts';
import type { Random } from './random.ts';

const LEVELS = ['debug', 'info', 'warn', 'error', 'critical'];
const SERVICES = ['checkout', 'gateway', 'Mailer', 'search', 'web-eu', 'web-us'];
const VERBS = ['accepted', 'Refused', 'timed out', 'retried', 'stored'];
const NOUNS = ['basket', 'Invoice', 'order', 'parcel', 'session', 'token'];
const WINDOWS_S: Record<string, number> = {
  '1s': 1,
  '5s': 5,
  '45s': 45,
  '5m': 300,
  '599s': 599,
  '17m': 1_020,
  '1h': 3_600,
  '3h': 10_800,
  '1d': 86_400,
};
/** How late entries come, in seconds: mostly at once, some long after, some of a clock that is ahead. */
const LATE_S = [0, 0, 0, 0, 1, 1, 2, 4, 30, 299, 301, 900, 4_000, 20_000, -1, -30, -59, -61, -500];

function pick<T>(random: Random, items: readonly T[]): T {
  return items[Math.floor(random() * items.length)] as T;
}

/** An entry of a service of the tests' that comes when it is `nowMs`, more or less late. */
export function makeEntry(random: Random, nowMs: number): SentEntry {
  const timeMs = nowMs - pick(random, LATE_S) * 1_000 - pickInteger(random, 0, 999);
  return {
    time: new Date(timeMs).toISOString(),
    service: pick(random, SERVICES),
    level: pick(random, LEVELS),
    message: `${pick(random, NOUNS)} ${pickInteger(random, 1, 50)} was ${pick(random, VERBS)}`,
    metadata: {
      status: pick(random, [200, 200, 200, 404, 500]),
      tookMs: pickInteger(random, 1, 1_000),
      region: pick(random, ['eu', 'us', 'ap']),
      ...(random() < 0.3 ? { customer: `c-${pickInteger(random, 1, 5)}` } : {}),
    },
  };
}

type Matching = { condition: Pick<RuleDraft['condition'], 'field' | 'operator' | 'value'>; share: number };

/** A condition and about what share of the entries it matches. */
function makeCondition(random: Random): Matching {
  const one = (field: string, operator: string, value: unknown, share: number): Matching => ({
    condition: { field, operator, ...(value === undefined ? {} : { value }) },
    share,
  });
  const choices: (() => Matching)[] = [
    () => one('level', 'equals', pick(random, LEVELS), 0.2),
    () => one('level', 'not_equals', pick(random, LEVELS), 0.8),
    () => one('level', 'gte', 'error', 0.4),
    () => one('level', 'lt', 'warn', 0.4),
    () => one('level', 'in', [pick(random, LEVELS), pick(random, LEVELS)], 0.35),
    () => one('service', 'equals', pick(random, SERVICES), 0.17),
    () => one('service', 'not_in', ['checkout', 'search'], 0.67),
    () => one('service', 'starts_with', 'WEB', 0.33),
    () => one('message', 'contains', pick(random, ['basket', 'INVOICE', 'timed out', 'ored']), 0.18),
    () => one('message', 'not_contains', pick(random, VERBS), 0.8),
    () => one('message', 'starts_with', pick(random, NOUNS), 0.17),
    () => one('message', 'regex', '(basket|order) [0-9] was', 0.06),
    () => one('metadata.status', 'equals', pick(random, [404, 500]), 0.2),
    () => one('metadata.tookMs', 'gt', pick(random, [500, 800, 950]), 0.25),
    () => one('metadata.tookMs', 'lte', 100, 0.1),
    () => one('metadata.region', 'equals', pick(random, ['eu', 'us']), 0.33),
    () => one('metadata.customer', 'exists', undefined, 0.3),
  ];
  return pick(random, choices)();
}

/**
 * A rule without recipients whose threshold is near what its window commonly holds, so that it crosses now and then.
 *
 * @param batches how many entries come at once, and how many seconds apart, about.
 */
export function makeRule(
  random: Random,
  name: string,
  batches: { entries: number; everyS: number },
): RuleDraft {
  const { condition, share } = makeCondition(random);
  const timeWindow = pick(random, Object.keys(WINDOWS_S));
  const isOfService = random() < 0.2 && condition.field !== 'service';
  const matching = batches.entries * share * (isOfService ? 1 / SERVICES.length : 1);
  const inWindow = matching * Math.max(1, (WINDOWS_S[timeWindow] ?? 1) / batches.everyS);
  const threshold = Math.max(1, Math.round(inWindow * (0.3 + 2 * random())));
  return {
    name,
    enabled: true,
    condition: { ...condition, threshold, timeWindow },
    notifications: [],
    ...(isOfService ? { service: pick(random, SERVICES) } : {}),
  };
}
