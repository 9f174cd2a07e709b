export type StoreErrorKind = 'unavailable' | 'too_expensive' | 'invalid_query' | 'conflict';

/**
 * What a store could not do, in the terms the callers decide by.
 *
 * `unavailable`: unknown outcome or a store out of reach; the caller says 503 or retries.
 * `too_expensive`: a search went over its limits. `invalid_query`: the store refused the search text.
 * `conflict`: a compare-and-set lost against another writer.
 */
export class StoreError extends Error {
  override readonly name = 'StoreError';
  readonly kind: StoreErrorKind;
  readonly store: 'redis' | 'clickhouse';

  constructor(store: 'redis' | 'clickhouse', kind: StoreErrorKind, message: string, options?: ErrorOptions) {
    super(message, options);
    this.store = store;
    this.kind = kind;
  }
}
