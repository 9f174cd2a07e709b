const UUID_OR_HEX = /^(?:[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$/i;

/** 32 lower-case digits: a UUID and its hex form in any letter case are one trace. Undefined for any other text. */
export function toTraceKey(traceId: string): string | undefined {
  return UUID_OR_HEX.test(traceId) ? traceId.replaceAll('-', '').toLowerCase() : undefined;
}
