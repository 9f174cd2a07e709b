import { AlertRules } from '@logpond/db/alert-rules';
import { connectRedis } from '@logpond/db/connect';
import { ControlStore } from '@logpond/db/control-store';
import { RuleStream } from '@logpond/db/rule-stream';
import { SecretSealer, secretKeysShape } from '@logpond/db/sealed-secret';
import { checkRedisMode, storeSettingsShape } from '@logpond/db/settings';
import { ConfigError, EXIT_CONFIG, readConfig } from '@logpond/runtime/env';
import { z } from 'zod';

/**
 * `npm run rotate-secrets`: brings every secret of a webhook under the first of SECRET_KEYS, so that the keys behind it
 * can be taken away. It may run beside everything else and may be repeated. Exit code 1: some secrets are left.
 */
const configSchema = z.object({ ...storeSettingsShape, ...secretKeysShape }).superRefine(checkRedisMode);

async function rotate(): Promise<number> {
  const config = readConfig(configSchema);
  const sealer = SecretSealer.parse(config.SECRET_KEYS);
  if (sealer === undefined)
    throw new ConfigError('SECRET_KEYS: expected the new key and the old ones; it is not set');
  await using redis = await connectRedis(config);
  const rules = new AlertRules(new ControlStore(redis), {
    stream: new RuleStream(redis),
    shards: config.SHARDS,
    sealer,
  });
  const outcome = await rules.resealAll({ kind: 'operator' }, sealer);
  for (const { ruleId, reason } of outcome.unreadable) say(`rule ${ruleId}: ${reason}`);
  say(`${outcome.rules} rules looked at, ${outcome.resealed} sealed anew, ${outcome.unreadable.length} left`);
  return outcome.unreadable.length === 0 ? 0 : 1;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

try {
  process.exitCode = await rotate();
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = error instanceof ConfigError ? EXIT_CONFIG : 1;
}
