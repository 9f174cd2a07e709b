import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { openWebhookSecrets, SecretSealer } from '@logpond/db/sealed-secret';
import { inheritEnvironment } from '@logpond/runtime/env';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRule, SHAPE_A } from './alerts-fixture.ts';
import { openContractApi } from './contract-fixture.ts';
import type { ContractApi } from './contract-fixture.ts';

const COMMAND = fileURLToPath(import.meta.resolve('@logpond/api/rotate-secrets'));
const OLD = `old:${randomBytes(32).toString('base64')}`;
const NEW = `new:${randomBytes(32).toString('base64')}`;
const TIMEOUT_MS = 30_000;

let api: ContractApi;
beforeAll(async () => {
  api = await openContractApi({ SECRET_KEYS: OLD });
});
afterAll(async () => api[Symbol.asyncDispose]());

/** Runs the command to its end. */
async function rotate(SECRET_KEYS: string): Promise<{ code: unknown; said: string }> {
  const env = inheritEnvironment({ ...api.env, SECRET_KEYS });
  return new Promise((resolve) => {
    execFile(process.execPath, [COMMAND], { env, timeout: TIMEOUT_MS }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : error.code, said: stdout + stderr });
    });
  });
}

describe('S56: the rotation command', () => {
  it('brings all secrets under the first key, beside a running API, and says what it did', async () => {
    const tenant = await api.createTenant('rotation');
    const url = 'https://hooks.example.org/x';
    const notifications = [{ type: 'webhook', config: { url, secret: 's', headers: { A: 'h' } } }];
    const { id } = await createRule(api, tenant, { ...SHAPE_A, notifications });
    await createRule(api, tenant, SHAPE_A);
    expect(await rotate(NEW)).toMatchObject({
      code: 1,
      said: expect.stringMatching(
        /^rule [0-9a-f-]{36}: .*"old"\n2 rules looked at, 0 sealed anew, 1 left\n$/,
      ) as string,
    });
    const done = '2 rules looked at, 1 sealed anew, 0 left\n';
    expect(await rotate(`${NEW},${OLD}`)).toEqual({ code: 0, said: done });
    expect(await rotate(NEW)).toEqual({ code: 0, said: done.replace('1 sealed', '0 sealed') });
    const [notification] = (await api.deps.alertRules.find(tenant.projectId, id))?.notifications ?? [];
    const sealer = SecretSealer.parse(NEW);
    if (notification?.type !== 'webhook' || sealer === undefined) throw new Error('expected a webhook');
    expect(openWebhookSecrets(sealer, id, notification.config)).toEqual({ secret: 's', headers: { A: 'h' } });
  });

  it('refuses to start without keys, or with ones that are none', async () => {
    expect(await rotate('')).toMatchObject({
      code: 78,
      said: expect.stringMatching(/^SECRET_KEYS: /) as string,
    });
    const bad = await rotate('old:c2hvcnQ=');
    expect(bad).toMatchObject({ code: 78, said: expect.stringContaining('got 5 bytes') as string });
    expect(bad.said).not.toContain('c2hvcnQ');
  });
});
