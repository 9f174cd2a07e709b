import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { comparePreviews } from './support/alert-preview-run.ts';
import { AlertRig } from './support/alert-rig.ts';
import { chooseSeed, createRandom } from './support/random.ts';

const RULES = 100;
const INSTANTS = 600;

let own: AlertRig;

beforeAll(async () => {
  own = await AlertRig.open({ shards: 2 });
});
afterAll(async () => own[Symbol.asyncDispose]());

describe('the preview of a day', () => {
  it('is what the worker fired, for every rule, though it was behind and killed', async () => {
    const random = createRandom(chooseSeed('alert-preview'));
    const tenants = await own.createTenants(1);
    const { different, verdict, ...counts } = await comparePreviews(own, {
      tenants,
      rules: RULES,
      instants: INSTANTS,
      random,
    });
    process.stdout.write(`alert-preview: ${JSON.stringify({ ...counts, verdict })}\n`);
    expect(different.map((text) => text.slice(0, 1_000))).toEqual([]);
    expect(verdict.faults).toEqual([]);
    expect(counts.rulesFired).toBeGreaterThan(RULES / 3);
  });
});
