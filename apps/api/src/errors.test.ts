import { mapRedisError } from '@logpond/db/connect';
import { StoreError } from '@logpond/db/store-error';
import { ApiError } from '@logpond/schema/api-error';
import { describe, expect, it } from 'vitest';
import { renderError, retryAfterOf, toApiError } from './errors.ts';

describe('toApiError', () => {
  it('never turns a fault of a store into a 500', () => {
    const statuses = (['unavailable', 'too_expensive', 'invalid_query', 'conflict'] as const).map(
      (kind) => toApiError(new StoreError('redis', kind, 'ECONNREFUSED 10.0.0.1')).statusCode,
    );
    expect(statuses).toEqual([503, 400, 400, 409]);
  });

  it('asks to come back after 1 or 2 s when a store is out of reach, and says nothing of the store', () => {
    const error = toApiError(new StoreError('clickhouse', 'unavailable', 'ECONNREFUSED 10.0.0.1'));
    expect(['1', '2']).toContain(retryAfterOf(error));
    expect(renderError(error, 'r')).not.toContain('10.0.0.1');
  });

  it('tells of a bug nothing but the request id', () => {
    const body = renderError(toApiError(new TypeError('secret at /srv/app.ts:3')), 'r-1');
    expect(JSON.parse(body)).toEqual({
      error: 'something went wrong on our side',
      code: 'INTERNAL_ERROR',
      statusCode: 500,
      requestId: 'r-1',
    });
  });
});

describe('what Redis answers in trouble', () => {
  it.each([
    // As Redis 7 and 8 word it, plainly and from inside a script.
    "OOM command not allowed when used memory > 'maxmemory'.",
    "OOM command not allowed when used memory > 'maxmemory'. script: 8a1b, on @user_script:47.",
    'MISCONF Errors writing to the AOF file: No space left on device',
    "READONLY You can't write against a read only replica. script: 8a1b, on @user_script:47.",
    'LOADING Redis is loading the dataset in memory',
    'BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.',
    'CLUSTERDOWN The cluster is down',
    'TRYAGAIN Multiple keys request during rehashing of slot',
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    'NOREPLICAS Not enough good replicas to write.',
    'UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)',
    'ERR max number of clients reached',
    'Command timed out',
    'Connection is closed.',
    "Stream isn't writeable and enableOfflineQueue options is false",
  ])('is 503 with Retry-After and stays inside: %s', (text) => {
    const error = toApiError(mapRedisError(new Error(text)));
    expect([error.statusCode, error.code]).toEqual([503, 'UNAVAILABLE']);
    expect(retryAfterOf(error)).toMatch(/^[12]$/);
    expect(renderError(error, 'r')).not.toContain(text.split(' ', 1)[0]);
  });

  it('a command that is wrong is our fault: 500', () => {
    const error = toApiError(mapRedisError(new Error('ERR wrong number of arguments')));
    expect(error.statusCode).toBe(500);
  });
});

describe('renderError', () => {
  it('keeps internal text inside and at most 20 details', () => {
    const details = Array.from({ length: 30 }, (_, index) => ({ index, path: 'p', message: 'm' }));
    const body = renderError(
      new ApiError('VALIDATION_ERROR', { internal: 'hidden', public: 'shown', details }),
      'r',
    );
    expect(body).not.toContain('hidden');
    expect((JSON.parse(body) as { details: unknown[] }).details).toHaveLength(20);
  });
});

describe('retryAfterOf', () => {
  it('is a whole number of seconds on every 429 and 503', () => {
    expect(retryAfterOf(new ApiError('RATE_LIMITED'))).toBe('1');
    expect(retryAfterOf(new ApiError('BACKPRESSURE', { retryAfterS: 2.1 }))).toBe('3');
    expect(retryAfterOf(new ApiError('SETUP_REQUIRED'))).toBe('1');
    expect(retryAfterOf(new ApiError('CONFLICT', { retryAfterS: 1 }))).toBe('1');
    expect(retryAfterOf(new ApiError('NOT_FOUND'))).toBeUndefined();
  });
});
