import { parseExactJson } from '@logpond/schema/exact-json';
import { storedEntrySchema } from '@logpond/schema/log-entry';
import { describe, expect, it } from 'vitest';
import { renderEntryJson } from './entry-json.ts';

const ENTRY = {
  id: '019c13ec-9e7b-8003-81c0-0001d6f34540',
  timeNs: 1_769_860_800_123_456_789n,
  service: 'a "b"\r\nevent: log',
  level: 'warn',
  message: 'line\nfeed\u2028',
  metadataJson: '{"n":9007199254740993,"__proto__":1}',
} as const;

describe('renderEntryJson', () => {
  it('is the entry of the contract, on one line, absent fields left out', () => {
    const text = renderEntryJson(ENTRY);
    expect(text).not.toMatch(/[\r\n]/);
    expect(storedEntrySchema.safeParse(JSON.parse(text)).success).toBe(true);
    expect(Object.keys(JSON.parse(text) as object)).toEqual([
      'id',
      'time',
      'service',
      'level',
      'message',
      'metadata',
    ]);
    expect(JSON.parse(text)).toMatchObject({
      time: '2026-01-31T12:00:00.123456789Z',
      service: ENTRY.service,
    });
    expect(JSON.stringify(parseExactJson(text))).toContain(ENTRY.metadataJson);
  });

  it('has trace, span, session and project when they are there', () => {
    const text = renderEntryJson({
      ...ENTRY,
      traceId: 't',
      spanId: 's',
      sessionId: 'u',
      projectId: ENTRY.id,
    });
    expect(JSON.parse(text)).toMatchObject({
      trace_id: 't',
      span_id: 's',
      session_id: 'u',
      project_id: ENTRY.id,
    });
  });
});
