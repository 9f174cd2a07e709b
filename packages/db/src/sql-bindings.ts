type ParameterType =
  | 'UUID'
  | 'String'
  | 'Int64'
  | 'UInt64'
  | 'UInt32'
  | 'UInt16'
  | 'UInt8'
  | 'Float64'
  | `Array(${string})`;

/**
 * The values of one query. Nothing a user wrote becomes part of the SQL (S21): it is bound here, and the SQL
 * holds only the placeholder that `bind` returns. 64-bit integers are passed as strings.
 */
export class SqlBindings {
  readonly params: Record<string, unknown> = {};
  #count = 0;

  /** Adds a value; returns its placeholder. */
  bind(type: ParameterType, value: string | number | readonly string[] | readonly number[]): string {
    const name = `p${this.#count++}`;
    this.params[name] = value;
    return `{${name}:${type}}`;
  }
}
