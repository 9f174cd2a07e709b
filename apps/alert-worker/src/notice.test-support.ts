import type { AlertRuleDocument } from '@logpond/db/rule-change';
import type { Notice, NoticeItem } from './channels/notice.ts';

const AT_MS = Date.UTC(2026, 10, 21, 19, 45, 1);
const PROJECT_ID = '0190a5e0-0000-7000-8000-000000000001';

export function makeItem(changes: Partial<NoticeItem> = {}): NoticeItem {
  return {
    firingId: '0190a5e0-0000-7000-8000-0000000000f1',
    kind: 'fired',
    repeat: 0,
    projectId: PROJECT_ID,
    count: 57,
    peak: 57,
    startedAtMs: AT_MS,
    resolvedAtMs: null,
    atMs: AT_MS,
    ...changes,
  };
}

export function makeRule(changes: Partial<AlertRuleDocument> = {}): AlertRuleDocument {
  return {
    version: 1,
    generation: 1,
    id: '0190a5e0-0000-7000-8000-0000000000a1',
    projectId: PROJECT_ID,
    name: 'Many errors',
    enabled: true,
    condition: { field: 'level', operator: 'equals', value: 'error', threshold: 50, timeWindow: '5m' },
    notifications: [],
    createdAt: '2026-11-01T00:00:00.000Z',
    updatedAt: '2026-11-01T00:00:00.000Z',
    ...changes,
  };
}

export function makeNotice(changes: Partial<Notice> = {}): Notice {
  return {
    id: 'job-1',
    rule: makeRule(),
    project: { id: PROJECT_ID, name: 'Shop' },
    items: [makeItem()],
    samples: [],
    search: { url: 'https://logs.example.com/api/v1/logs?projectId=1&from=2&to=3', isExact: true },
    isTest: false,
    ...changes,
  };
}
