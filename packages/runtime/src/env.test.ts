import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { maskConfig, readConfig } from './env.ts';

describe('the configuration', () => {
  it('is logged without the credentials inside URLs, whatever characters they hold', () => {
    const masked = maskConfig({
      REDIS_URL: 'redis://:p@ss@host:6379/0',
      CLICKHOUSE_PASSWORD: 'secret',
      CLICKHOUSE_URL: 'http://host:8123',
      SMTP_URL: 'smtp://host?pool=true&auth.pass=secret&name=me',
      SECRET_KEYS: 'a:secret',
      SHARDS: 4,
    });
    expect(masked).toEqual({
      REDIS_URL: 'redis://***@host:6379/0',
      CLICKHOUSE_PASSWORD: '***',
      CLICKHOUSE_URL: 'http://host:8123',
      SMTP_URL: 'smtp://host?pool=true&auth.pass=***&name=me',
      SECRET_KEYS: '***',
      SHARDS: 4,
    });
  });

  it('is refused without printing the credentials of a URL that is none', () => {
    const schema = z.object({ REDIS_URL: z.url({ protocol: /^rediss?$/ }) });
    const read = (): unknown => readConfig(schema, { REDIS_URL: 'redis//:s3cr/et@host' });
    expect(read).toThrow('REDIS_URL');
    expect(read).not.toThrow(/s3cr/);
  });
});
