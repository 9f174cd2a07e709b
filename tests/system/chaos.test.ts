import { describe, expect, it } from 'vitest';
import { runChaos } from './support/chaos-run.ts';
import { findHarms, renderFaults } from './support/chaos-table.ts';

const SECONDS = 30;
/** The same in every run of the tests unless SEED is given; `npm run chaos` draws another one each time. */
const SEED = 4;

describe('everything at once', () => {
  it('F02: loses and duplicates nothing while processes, stores and connections fail at random', async () => {
    const seed = Number(process.env['SEED'] ?? SEED);
    process.stdout.write(`F02: SEED=${seed}\n`);
    const report = await runChaos({ seed, seconds: SECONDS });
    const { verdict, crashes, processKills, redisKills } = report;
    const harms = findHarms(verdict.faults, report.ledgerFile);
    process.stdout.write(
      `${renderFaults(report.summaries, report.spans, harms)}\n${JSON.stringify(verdict)}\n`,
    );
    expect(verdict).toMatchObject({ faults: [], lost: 0, duplicated: 0, foreign: 0, changed: 0 });
    expect(crashes.filter(({ isStoreAway }) => !isStoreAway)).toEqual([]);
    expect(verdict.acknowledged).toBeGreaterThan(1_000);
    expect(processKills).toBeGreaterThan(5);
    expect(redisKills).toBeGreaterThan(0);
  });
});
