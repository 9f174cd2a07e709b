import { ApiError } from '@logpond/schema/api-error';
import type { ErrorDetail } from '@logpond/schema/api-error';
import { describeIssue } from '@logpond/schema/describe-issue';
import type { z } from 'zod';

/** Largest body of a management request, in bytes. */
const MANAGEMENT_BODY_BYTES_MAX = 256 * 1024;
const DETAILS_MAX = 20;

/** What a route takes as its body. */
export type BodySpec<Body> = {
  /** For the documentation, by content type. */
  content: Readonly<Record<string, z.ZodType>>;
  /** Undefined: the setting for ingest bodies. */
  bytesMax: number | undefined;
  /** @throws {ApiError} UNSUPPORTED_MEDIA_TYPE that says which header to send. */
  checkMediaType: (mediaType: string) => void;
  /** @throws {ApiError} INVALID_JSON or VALIDATION_ERROR. */
  parse: (bytes: Buffer, mediaType: string) => Body;
};

/** The media type of a Content-Type header in lower case without parameters; '' when there is none. */
export function parseMediaType(header: string | undefined): string {
  if (header === undefined) return '';
  const [type = '', ...parameters] = header.split(';');
  for (const parameter of parameters) {
    const charset = /^\s*charset\s*=\s*"?([^"\s]*)"?\s*$/i.exec(parameter)?.[1]?.toLowerCase();
    if (charset !== undefined && charset !== 'utf-8' && charset !== 'utf8' && charset !== 'us-ascii') {
      throw new ApiError('UNSUPPORTED_MEDIA_TYPE', {
        public: `expected charset utf-8, got ${JSON.stringify(charset.slice(0, 80))}`,
      });
    }
  }
  return type.trim().toLowerCase();
}

/** A JSON body of a management route; `schema` should be strict. */
export function jsonBody<Schema extends z.ZodType>(schema: Schema): BodySpec<z.output<Schema>> {
  return {
    content: { 'application/json': schema },
    bytesMax: MANAGEMENT_BODY_BYTES_MAX,
    checkMediaType: (mediaType) => {
      if (mediaType === 'application/json') return;
      throw new ApiError('UNSUPPORTED_MEDIA_TYPE', {
        public: `expected the header "Content-Type: application/json", got ${nameMediaType(mediaType)}`,
      });
    },
    parse: (bytes) => parseBySchema(schema, parseJson(bytes)),
  };
}

/** A media type as an error names it. */
export function nameMediaType(mediaType: string): string {
  return mediaType === '' ? 'no Content-Type' : JSON.stringify(mediaType.slice(0, 80));
}

/** @throws {ApiError} INVALID_JSON that says where the text stops being JSON. */
function parseJson(bytes: Buffer): unknown {
  const text = bytes.toString('utf8').replace(/^\uFEFF/, '');
  if (text.trim() === '') {
    throw new ApiError('INVALID_JSON', { public: 'expected a JSON object as body, got an empty body' });
  }
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new ApiError('INVALID_JSON', { public: `the body is not JSON; ${describeJsonError(error, text)}` });
  }
}

/** V8's own sentence: it gives a position, or the text around the bad character. */
function describeJsonError(error: unknown, text: string): string {
  const message = error instanceof Error ? error.message : String(error);
  if (/Unexpected end/.test(message)) return `it ends too early, after ${text.length} characters`;
  return message.slice(0, 200);
}

/** @throws {ApiError} VALIDATION_ERROR with a detail for each of the first 20 problems. */
export function parseBySchema<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> {
  const parsed = schema.safeParse(value, { error: describeIssue });
  if (parsed.success) return parsed.data;
  const details = parsed.error.issues
    .slice(0, DETAILS_MAX)
    .map((issue): ErrorDetail => ({ path: issue.path.join('.'), message: issue.message }));
  const first = details[0];
  const where = first === undefined || first.path === '' ? 'the body' : first.path;
  throw new ApiError('VALIDATION_ERROR', {
    public: `${where}: ${first?.message ?? 'is not valid'}`,
    details,
  });
}
