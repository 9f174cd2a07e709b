import { z } from 'zod';
import { ApiError } from './api-error.ts';
import { describeValue } from './describe-value.ts';

/** Throws VALIDATION_ERROR that names the parameter, what was expected and what came. */
export function refuseParameter(name: string, expected: string, value: unknown): never {
  const message = `expected ${expected}, got ${describeValue(value)}`;
  throw new ApiError('VALIDATION_ERROR', {
    public: `${name}: ${message}`,
    details: [{ path: name, message }],
  });
}

/** The value of a parameter that may come once; undefined when absent or empty. */
export function readSingle(params: URLSearchParams, name: string): string | undefined {
  const values = params.getAll(name);
  if (values.length > 1) return refuseParameter(name, 'this parameter once', values);
  return values[0] === '' ? undefined : values[0];
}

/** The values of a parameter that may be repeated, empty ones left out; at most `max`. */
export function readRepeated(params: URLSearchParams, name: string, max: number): string[] {
  const values = params.getAll(name).filter((value) => value !== '');
  return values.length > max ? refuseParameter(name, `this parameter at most ${max} times`, values) : values;
}

/** A parameter that is a whole number from `min` to `max`. */
export function integerParameter(min: number, max: number): z.ZodType<number, string> {
  return z
    .string()
    .transform((text, context): number => {
      const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
      if (value >= min && value <= max) return value;
      const message = `expected an integer from ${min} to ${max}, got ${describeValue(text)}`;
      context.addIssue({ code: 'custom', message });
      return z.NEVER;
    })
    .meta({ type: 'integer', minimum: min, maximum: max });
}
