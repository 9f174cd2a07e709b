import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { checkRedisMode, storeSettingsShape } from './settings.ts';

const schema = z.object(storeSettingsShape).superRefine(checkRedisMode);

function problemsOf(given: Record<string, string>): string[] {
  return (
    schema.safeParse(given).error?.issues.map(({ path, message }) => `${path.join('.')}: ${message}`) ?? []
  );
}

describe('the settings of Redis', () => {
  it('need nothing for one server on this machine', () => {
    expect(schema.parse({})).toMatchObject({
      REDIS_MODE: 'single',
      REDIS_URL: 'redis://127.0.0.1:6379',
      REDIS_WAIT_REPLICAS: 0,
      REPLAY_WINDOW_MS: 900_000,
    });
  });

  it.each([
    [{ REDIS_URL: 'redis://a,redis://b' }, 'expected one URL while REDIS_MODE is single'],
    [{ REDIS_URL: 'redis://a,' }, 'expected a URL such as redis://host:6379'],
    [{ REDIS_URL: 'http://a' }, 'expected a URL such as redis://host:6379'],
    [{ REDIS_MODE: 'cluster', REDIS_URL: 'redis://a,rediss://b' }, 'all of one scheme'],
    [{ REDIS_MODE: 'cluster', REDIS_URL: 'redis://a/1' }, 'expected no database number'],
  ])('refuse %j', (given, sentence) => {
    expect(problemsOf(given)).toEqual([expect.stringContaining(sentence)]);
    expect(problemsOf(given)[0]).toMatch(/^REDIS_URL: /);
  });

  it.each([
    { REDIS_URL: 'rediss://user:p%2Cw@a:7000/2' },
    { REDIS_MODE: 'sentinel', REDIS_URL: 'redis://:pw@a:26379, redis://b:26379/1' },
    { REDIS_MODE: 'cluster', REDIS_URL: 'redis://a,redis://[::1]:7001' },
  ])('take %j', (given) => {
    expect(problemsOf(given)).toEqual([]);
  });
});
