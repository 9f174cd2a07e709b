import { ConfigError, readConfig } from '@logpond/runtime/env';
import { expect, it } from 'vitest';
import { configSchema } from './config.ts';

it('F51: an audit that comes after the replay window is refused, and both times are said', () => {
  const read = (auditAfterMs: string): unknown =>
    readConfig(configSchema, { AUDIT_AFTER_MS: auditAfterMs, REPLAY_WINDOW_MS: '60000' });
  expect(read('59999')).toMatchObject({ AUDIT_AFTER_MS: 59_999 });
  expect(() => read('60000')).toThrow(ConfigError);
  expect(() => read('60000')).toThrow(/AUDIT_AFTER_MS: .*REPLAY_WINDOW_MS \(60000\).*"60000"/);
});
