import { createLog } from '@logpond/runtime/log';
import { expect, it } from 'vitest';
import { OTHER, PROJECT } from './rule.test-support.ts';
import { SkipReport } from './skip-report.ts';

it('what patterns were not asked is logged once a minute a project, with its rules', () => {
  let nowMs = 0;
  const lines: unknown[] = [];
  const log = createLog('test', 'silent');
  log.error = (fields: unknown) => lines.push(fields);
  const report = new SkipReport(log, () => nowMs);
  for (nowMs = 0; nowMs < 119_000; nowMs += 1_000) {
    report.add({ projectId: PROJECT, ruleIds: ['a'], entries: 3 });
    if (nowMs >= 30_000) report.add({ projectId: OTHER, ruleIds: ['b', 'c'], entries: 1 });
  }
  const own = { projectId: PROJECT, ruleIds: ['a'] };
  const other = { projectId: OTHER, ruleIds: ['b', 'c'] };
  expect(lines).toEqual([own, other, own, other]);
});
