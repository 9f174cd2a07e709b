import { StoreError } from '@logpond/db/store-error';
import { ApiError } from '@logpond/schema/api-error';
import type { Log } from '@logpond/runtime/log';
import { jitterRetryAfter } from './retry-after.ts';

const DETAILS_MAX = 20;
const STORE_TEXT_LENGTH_MAX = 300;

/** Whatever a route threw, as the error that the caller is told. A fault of a store is never a 500. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof StoreError) return fromStoreError(error);
  return new ApiError('INTERNAL_ERROR', { cause: error });
}

function fromStoreError(error: StoreError): ApiError {
  switch (error.kind) {
    case 'unavailable':
      return new ApiError('UNAVAILABLE', {
        public: 'a store is out of reach; nothing is confirmed, send again',
        retryAfterS: jitterRetryAfter(1.5),
        cause: error,
      });
    case 'too_expensive':
      return new ApiError('QUERY_TOO_EXPENSIVE', {
        public: 'the query reads too much; narrow the time range or add a service or level filter',
        cause: error,
      });
    case 'invalid_query':
      return new ApiError('VALIDATION_ERROR', {
        public: error.message.split('\n', 1)[0]?.slice(0, STORE_TEXT_LENGTH_MAX) ?? 'the query is not valid',
        cause: error,
      });
    case 'conflict':
      return new ApiError('CONFLICT', {
        public: 'somebody else changed this at the same moment; try again',
        cause: error,
      });
  }
}

/** The one shape of an error's body (contract.md §1). */
export function renderError(error: ApiError, requestId: string): string {
  return JSON.stringify({
    error: error.publicMessage,
    code: error.code,
    statusCode: error.statusCode,
    ...(error.details === undefined ? {} : { details: error.details.slice(0, DETAILS_MAX) }),
    requestId,
  });
}

/** Seconds for Retry-After: whole, at least 1; on every 429 and 503, elsewhere only where the error says so. */
export function retryAfterOf(error: ApiError): string | undefined {
  if (error.retryAfterS === undefined && error.statusCode !== 429 && error.statusCode !== 503)
    return undefined;
  return String(Math.max(1, Math.ceil(error.retryAfterS ?? 1)));
}

/** Logs what only the operator may know: the cause of a 5xx. */
export function logFault(log: Log, error: ApiError, requestId: string): void {
  if (error.statusCode < 500 || error.code === 'SETUP_REQUIRED') return;
  const fields = { requestId, code: error.code, internal: error.internal, err: error.cause };
  if (error.statusCode === 500) log.error(fields, 'a request failed by a fault of ours');
  else log.warn(fields, 'a request was turned away');
}
