import type { z } from 'zod';

/** Refuses what takes more than `bytesMax` bytes as JSON; for `superRefine`. What came is not repeated. */
export function atMostJsonBytes(bytesMax: number): (value: unknown, context: z.RefinementCtx) => void {
  return (value, context) => {
    const bytes = new TextEncoder().encode(JSON.stringify(value)).length;
    if (bytes <= bytesMax) return;
    context.addIssue({
      code: 'custom',
      message: `expected at most ${bytesMax} bytes of JSON, got ${bytes}`,
    });
  };
}
