import { expect, it } from 'vitest';
import type { AuditRecord } from './audit-record.ts';
import { groupRecords } from './auditor.ts';

function record(from: number, to: number, rest: Partial<AuditRecord> = {}): AuditRecord {
  const times = { minTimeNs: '0', maxTimeNs: '1', atMs: 0, hours: [0] };
  return { epoch: 1, from, to, rows: to - from, isUncertain: false, retention: { a: 30 }, ...times, ...rest };
}

it('plans are counted together when they follow each other in one epoch and name few projects and hours', () => {
  const many = Object.fromEntries(Array.from({ length: 500 }, (_, index) => [`p${index}`, 30]));
  const records = [
    record(1, 5),
    record(5, 9),
    record(12, 20),
    record(20, 25, { epoch: 2 }),
    record(25, 26, { epoch: 2, retention: many }),
    record(26, 27, { epoch: 2, hours: undefined }),
    record(27, 28, { epoch: 2 }),
  ];
  expect(groupRecords(records).map((group) => group.map(({ from }) => from))).toEqual([
    [1, 5],
    [12],
    [20],
    [25],
    [26],
    [27],
  ]);
});
