const UNIT_MS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const;

/**
 * Reads `<n>s|m|h|d|w` with n from 1 to 999,999,999 into milliseconds.
 * Undefined when the text is malformed, zero, or too long to be an exact number of milliseconds.
 */
export function parseDurationMs(text: string): number | undefined {
  const match = /^(\d{1,9})([smhdw])$/.exec(text);
  if (match === null) return undefined;
  const ms = Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS];
  return ms > 0 && Number.isSafeInteger(ms) ? ms : undefined;
}
