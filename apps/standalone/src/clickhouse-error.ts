/** An error in ClickHouse's own terms: a code of its catalogue and the sentence a real server would send. */
export class EngineError extends Error {
  override readonly name = 'EngineError';
  readonly code: number;

  constructor(code: number, symbol: string, message: string) {
    super(`Code: ${code}. DB::Exception: ${message} (${symbol})`);
    this.code = code;
  }
}

/** ClickHouse's exceptionCodeToHTTPStatus (src/Server/HTTP/exceptionCodeToHTTPStatus.cpp); all others are 500. */
const STATUS_BY_CODE: ReadonlyMap<number, number> = new Map([
  ...[6, 26, 27, 36, 38, 41, 43, 53, 62, 70, 117, 130, 131, 427, 452, 456, 457].map(
    (code) => [code, 400] as const,
  ),
  ...[164, 291, 497].map((code) => [code, 403] as const),
  ...[16, 34, 42, 46, 47, 60, 73, 81, 115].map((code) => [code, 404] as const),
  [516, 401],
  [159, 408],
  [242, 413],
  [48, 501],
  ...[202, 203, 236].map((code) => [code, 503] as const),
]);

const UNKNOWN_EXCEPTION = 1002;

/** What the client of a real server would see for this failure: HTTP status, code header and body. */
export function describeFailure(
  error: unknown,
  version: string,
): { status: number; code: number; body: string } {
  const message = error instanceof Error ? error.message : String(error);
  const code = readCode(error) ?? Number(/Code: (\d+)\./.exec(message)?.[1] ?? UNKNOWN_EXCEPTION);
  const start = message.lastIndexOf(`Code: ${code}. DB::`);
  const text =
    start >= 0 ? message.slice(start) : `Code: ${code}. DB::Exception: ${message} (UNKNOWN_EXCEPTION)`;
  return {
    status: STATUS_BY_CODE.get(code) ?? 500,
    code,
    body: `${text.trimEnd()} (version ${version} (embedded))\n`,
  };
}

function readCode(error: unknown): number | undefined {
  if (error instanceof EngineError) return error.code;
  if (typeof error !== 'object' || error === null || !('clickhouseCode' in error)) return undefined;
  return typeof error.clickhouseCode === 'number' ? error.clickhouseCode : undefined;
}
