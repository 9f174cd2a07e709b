import { z } from 'zod';
import { checkRedisMode, storeSettingsShape } from '@logpond/db/settings';
import { processSettingsShape } from '@logpond/runtime/settings';

/** Every setting of the alert worker (docs/operations.md says more). */
export const configSchema = z
  .object({
    ...storeSettingsShape,
    ...processSettingsShape,
  })
  .superRefine(checkRedisMode);
