import { describe, expect, it } from 'vitest';
import { ApiError, ERROR_STATUS, errorSchema } from './api-error.ts';
import {
  apiKeyInputSchema,
  organizationInputSchema,
  projectInputSchema,
  registerRequestSchema,
} from './account.ts';

describe('management bodies', () => {
  it('a registration without a name is named after its address', () => {
    expect(registerRequestSchema.parse({ email: 'ada@example.com', password: 'x'.repeat(12) }).name).toBe(
      'ada',
    );
  });

  it('passwords are counted in composed characters, 12 to 128', () => {
    const register = (password: string): boolean =>
      registerRequestSchema.safeParse({ email: 'ada@example.com', password }).success;
    expect([register('e\u0301'.repeat(11)), register('e\u0301'.repeat(12))]).toEqual([false, true]);
    expect([register('😀'.repeat(128)), register('😀'.repeat(129))]).toEqual([true, false]);
  });

  it('defaults are 30 days and all scopes', () => {
    const organizationId = '01890000-0000-7000-8000-000000000000';
    expect(projectInputSchema.parse({ organizationId, name: 'p' }).retentionDays).toBe(30);
    expect(apiKeyInputSchema.parse({ name: 'k' }).scopes).toEqual(['ingest', 'query', 'stream']);
  });

  it('unknown keys are refused', () => {
    expect(organizationInputSchema.safeParse({ name: 'o', role: 'owner' }).success).toBe(false);
  });
});

describe('ApiError', () => {
  it('has the status of its code and keeps the internal text out of the public one', () => {
    const error = new ApiError('UNAVAILABLE', { internal: 'redis: connection refused', retryAfterS: 1 });
    expect(error).toMatchObject({ statusCode: 503, retryAfterS: 1, internal: 'redis: connection refused' });
    expect(error.publicMessage).not.toContain('redis');
  });

  it('keeps at most 20 details', () => {
    const details = Array.from({ length: 30 }, (_, index) => ({ index, path: 'level', message: 'x' }));
    expect(new ApiError('VALIDATION_ERROR', { details }).details).toHaveLength(20);
  });

  it('every code has a status that the error body may carry', () => {
    for (const [code, statusCode] of Object.entries(ERROR_STATUS)) {
      expect(errorSchema.safeParse({ error: 'x', code, statusCode }).success).toBe(true);
    }
  });
});
