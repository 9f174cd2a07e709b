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
