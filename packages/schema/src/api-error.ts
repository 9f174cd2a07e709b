import { z } from 'zod';

/** Every error code of the interface with its HTTP status (contract.md §1). */
export const ERROR_STATUS = {
  VALIDATION_ERROR: 400,
  INVALID_JSON: 400,
  BATCH_TOO_LARGE: 400,
  QUERY_TOO_EXPENSIVE: 400,
  MISSING_CREDENTIALS: 401,
  INVALID_API_KEY: 401,
  INVALID_TOKEN: 401,
  INVALID_CREDENTIALS: 401,
  FORBIDDEN: 403,
  INSUFFICIENT_SCOPE: 403,
  NOT_FOUND: 404,
  METHOD_NOT_ALLOWED: 405,
  CONFLICT: 409,
  PAYLOAD_TOO_LARGE: 413,
  UNSUPPORTED_MEDIA_TYPE: 415,
  IDEMPOTENCY_MISMATCH: 422,
  RATE_LIMITED: 429,
  BACKPRESSURE: 429,
  INTERNAL_ERROR: 500,
  UNAVAILABLE: 503,
  SETUP_REQUIRED: 503,
} as const;

export type ErrorCode = keyof typeof ERROR_STATUS;

/** One problem of a request: where (`index` in a batch, `path` in the body or the parameters) and what. */
export type ErrorDetail = { index?: number; path: string; message: string };

/** An answer names at most this many problems. */
export const ERROR_DETAILS_MAX = 20;

const DEFAULT_MESSAGE: Record<ErrorCode, string> = {
  VALIDATION_ERROR: 'the request holds values that are not allowed',
  INVALID_JSON: 'expected a JSON body, got something else',
  BATCH_TOO_LARGE: 'the batch holds too many log entries',
  QUERY_TOO_EXPENSIVE: 'the search reads too much; narrow its time range or its filters',
  MISSING_CREDENTIALS: 'expected credentials, got none',
  INVALID_API_KEY: 'expected a valid API key, got one that is unknown, revoked or expired',
  INVALID_TOKEN: 'expected a valid session token, got one that is unknown or expired',
  INVALID_CREDENTIALS: 'wrong e-mail or password',
  FORBIDDEN: 'these credentials do not permit this',
  INSUFFICIENT_SCOPE: 'this API key lacks the scope for this',
  NOT_FOUND: 'there is nothing here',
  METHOD_NOT_ALLOWED: 'this path does not take this method',
  CONFLICT: 'this conflicts with what is there',
  PAYLOAD_TOO_LARGE: 'the body is too large',
  UNSUPPORTED_MEDIA_TYPE: 'expected Content-Type: application/json, got another',
  IDEMPOTENCY_MISMATCH: 'this Idempotency-Key was used with another body',
  RATE_LIMITED: 'too many requests; wait and try again',
  BACKPRESSURE: 'too much is waiting to be stored; wait and try again',
  INTERNAL_ERROR: 'something went wrong on our side',
  UNAVAILABLE: 'not available at the moment; try again',
  SETUP_REQUIRED: 'no account exists yet; register the first one with the setup token',
};

export type ApiErrorOptions = {
  /** What the client is told instead of the default sentence of the code. */
  public?: string;
  /** For the log only, never sent. */
  internal?: string;
  /** The first 20 are kept. */
  details?: ErrorDetail[];
  retryAfterS?: number;
  cause?: unknown;
};

/** A refusal that a client is told about. The status follows from the code; `internal` never leaves the process. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly code: ErrorCode;
  readonly statusCode: number;
  readonly publicMessage: string;
  readonly details?: ErrorDetail[];
  readonly internal?: string;
  readonly retryAfterS?: number;

  constructor(code: ErrorCode, options: ApiErrorOptions = {}) {
    const publicMessage = options.public ?? DEFAULT_MESSAGE[code];
    super(
      options.internal ?? publicMessage,
      options.cause === undefined ? undefined : { cause: options.cause },
    );
    this.code = code;
    this.statusCode = ERROR_STATUS[code];
    this.publicMessage = publicMessage;
    if (options.details !== undefined) this.details = options.details.slice(0, ERROR_DETAILS_MAX);
    if (options.internal !== undefined) this.internal = options.internal;
    if (options.retryAfterS !== undefined) this.retryAfterS = options.retryAfterS;
  }
}

const ERROR_CODES = Object.keys(ERROR_STATUS) as [ErrorCode, ...ErrorCode[]];

/** The body of every answer with a status of 400 and above. */
export const errorSchema = z
  .object({
    error: z.string().meta({ description: 'What was expected and what came' }),
    code: z.enum(ERROR_CODES),
    statusCode: z.int(),
    details: z
      .array(z.object({ index: z.int().optional(), path: z.string(), message: z.string() }))
      .max(ERROR_DETAILS_MAX)
      .optional(),
    requestId: z.string().optional(),
  })
  .meta({ id: 'Error' });
