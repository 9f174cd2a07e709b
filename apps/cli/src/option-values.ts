import { parseDurationMs } from '@logpond/schema/duration';
import { InvalidArgumentError } from 'commander';

/** Collects a repeatable option. */
export function addValue(text: string, values: readonly string[] = []): string[] {
  return [...values, text];
}

/** Collects a repeatable key=value option; the key is everything before the first "=". */
export function addField(
  text: string,
  fields: readonly (readonly [string, string])[] = [],
): (readonly [string, string])[] {
  const at = text.indexOf('=');
  if (at < 1) throw new InvalidArgumentError(`Expected key=value, got "${text}".`);
  return [...fields, [text.slice(0, at), text.slice(at + 1)]];
}

/** Reads an integer between two bounds, both inclusive. */
export function readCount(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= min && value <= max) return value;
    throw new InvalidArgumentError(`Expected a whole number from ${min} to ${max}, got "${text}".`);
  };
}

/** Reads a duration such as 90s or 10m, up to `max`, in ms. */
export function readDuration(max: string): (text: string) => number {
  const maxMs = parseDurationMs(max) ?? 0;
  return (text) => {
    const ms = parseDurationMs(text);
    if (ms !== undefined && ms <= maxMs) return ms;
    throw new InvalidArgumentError(`Expected a duration up to ${max} such as 90s, got "${text}".`);
  };
}
