import { createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { Transform } from 'node:stream';
import type { TransformCallback } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { gunzipSync } from 'node:zlib';
import { EngineError } from './clickhouse-error.ts';
import { quoteSql } from './clickhouse-engine.ts';
import type { StatementContext } from './clickhouse-engine.ts';

/** One request in ClickHouse's HTTP interface (https://clickhouse.com/docs/interfaces/http), read to its end. */
export type Statement = {
  sql: string;
  context: StatementContext;
  /** 'insert' runs to its end whoever leaves; 'select' is stopped when its client leaves. */
  kind: 'insert' | 'select' | 'other';
  outputFormat: string;
  /** Body of an INSERT, on disk until the statement is over; undefined when it had none. */
  spoolFile: string | undefined;
};

const SQL_BYTES_MAX = 16 * 1024 * 1024;
const INSERT_BYTES_MAX = 1024 * 1024 * 1024;

/** Parameters of the interface itself; every other one is a setting or a `param_<name>`. */
const INTERFACE_PARAMETERS = new Set(
  'query database default_format query_id user password quota_key role stacktrace wait_end_of_query buffer_size'.split(
    ' ',
  ),
);
/** What a real server does with these cannot be done here; ignoring them would change results. */
const REFUSED_PARAMETERS = ['session_id', 'compress', 'decompress'];

/** Content-Encoding to INFILE's COMPRESSION: the engine inflates. */
const COMPRESSION_BY_ENCODING: ReadonlyMap<string, string> = new Map(
  ['gzip', 'deflate', 'br', 'zstd', 'lz4', 'xz'].map((encoding) => [encoding, encoding]),
);

const INSERT_WITH_BODY = /^([^]*?\bINSERT\s+INTO\s+[^]+?)(\s+SETTINGS\s+[^]+?)?\s+FORMAT\s+(\w+)\s*;?\s*$/i;
const OUTPUT_FORMAT = /\bFORMAT\s+(\w+)\s*(?:SETTINGS\b[^]*)?;?\s*$/i;
const LITERALS_AND_COMMENTS = /'(?:[^'\\]|\\[^])*'|"(?:[^"\\]|\\[^])*"|`[^`]*`|--[^\n]*|\/\*[^]*?\*\//g;

/**
 * Reads a request's statement, settings and data; the body of an INSERT goes to a file under `spoolDir`.
 * Throws EngineError with ClickHouse's code when the request cannot be run here.
 */
export async function readStatement(req: IncomingMessage, spoolDir: string): Promise<Statement> {
  const params = new URL(req.url ?? '/', 'http://front').searchParams;
  const refused = REFUSED_PARAMETERS.find((name) => !['', '0', null].includes(params.get(name)));
  if (refused !== undefined)
    throw new EngineError(48, 'NOT_IMPLEMENTED', `Parameter ${refused} is not supported.`);

  const urlSql = params.get('query') ?? '';
  const insert = req.method === 'GET' ? null : INSERT_WITH_BODY.exec(urlSql);
  const isMultipart = req.headers['content-type']?.startsWith('multipart/form-data') ?? false;
  if (insert && !isMultipart && !/\bSELECT\b/i.test(stripLiterals(urlSql))) {
    return readInsert(req, params, insert, spoolDir);
  }

  const fields = [...params];
  let sql = urlSql;
  if (isMultipart) {
    for (const [name, value] of await readForm(req)) {
      if (name === 'query') sql = value;
      else fields.push([name, value]);
    }
  } else if (req.method !== 'GET') {
    const body = await readSqlBody(req);
    sql = urlSql === '' || body === '' ? urlSql + body : `${urlSql}\n${body}`;
  }
  checkSql(sql);
  const kind = readKind(sql);
  return {
    sql,
    context: readContext(req, params, fields, kind),
    kind,
    outputFormat:
      OUTPUT_FORMAT.exec(sql)?.[1] ??
      params.get('default_format') ??
      headerOf(req, 'x-clickhouse-format') ??
      'TabSeparated',
    spoolFile: undefined,
  };
}

/** Spooled, not inlined: the engine cuts inline binary data at a newline, and memory stays constant. */
async function readInsert(
  req: IncomingMessage,
  params: URLSearchParams,
  insert: RegExpExecArray,
  spoolDir: string,
): Promise<Statement> {
  const [sql, head = '', settings = '', format = ''] = insert;
  checkSql(sql);
  const encoding = req.headers['content-encoding'] ?? 'identity';
  const compression = encoding === 'identity' ? 'none' : COMPRESSION_BY_ENCODING.get(encoding);
  if (compression === undefined) {
    throw new EngineError(48, 'NOT_IMPLEMENTED', `Content-Encoding ${encoding} is not supported.`);
  }
  const file = join(spoolDir, randomUUID());
  const counter = new ByteCounter(INSERT_BYTES_MAX);
  try {
    await pipeline(req, counter, createWriteStream(file, { mode: 0o600 }));
  } catch (error) {
    await rm(file, { force: true });
    throw error;
  }
  const isEmpty = counter.bytes === 0;
  if (isEmpty) await rm(file, { force: true });
  return {
    sql: `${head} FROM INFILE ${quoteSql(file)} COMPRESSION '${compression}'${settings} FORMAT ${format}`,
    context: readContext(req, params, [...params], 'insert'),
    kind: 'insert',
    outputFormat: 'TabSeparated',
    spoolFile: isEmpty ? undefined : file,
  };
}

function readContext(
  req: IncomingMessage,
  params: URLSearchParams,
  fields: [string, string][],
  kind: Statement['kind'],
): StatementContext {
  const settings = fields.filter(
    ([name]) => !INTERFACE_PARAMETERS.has(name) && !REFUSED_PARAMETERS.includes(name),
  );
  const isSet = (name: string): boolean => settings.some(([other]) => other === name);
  // As a real server: a GET changes nothing.
  if (req.method === 'GET' && !isSet('readonly')) settings.push(['readonly', '2']);
  // The row policy filters what a materialised view sees of an insert: without this tag the view gets no rows.
  // Only for inserts that carry their own data, which read no other rows.
  if (kind === 'insert' && !isSet('log_comment')) settings.push(['log_comment', '#internal']);
  const database = params.get('database') ?? headerOf(req, 'x-clickhouse-database');
  return {
    queryId: params.get('query_id') || randomUUID(),
    database: database === 'default' ? undefined : (database ?? undefined),
    settings,
  };
}

function checkSql(sql: string): void {
  if (sql.trim() === '') throw new EngineError(62, 'SYNTAX_ERROR', 'Empty query.');
  if (/\b(?:INFILE|OUTFILE)\b/i.test(stripLiterals(sql))) {
    throw new EngineError(48, 'NOT_IMPLEMENTED', 'INFILE and OUTFILE are not available over HTTP.');
  }
}

function stripLiterals(sql: string): string {
  return sql.replaceAll(LITERALS_AND_COMMENTS, ' ');
}

function readKind(sql: string): 'select' | 'other' {
  const first = /^[\s(;]*(\w+)/.exec(stripLiterals(sql))?.[1]?.toUpperCase();
  return first !== undefined && ['SELECT', 'WITH', 'SHOW', 'DESCRIBE', 'EXPLAIN', 'EXISTS'].includes(first)
    ? 'select'
    : 'other';
}

function headerOf(req: IncomingMessage, name: string): string | undefined {
  const value = req.headers[name];
  return Array.isArray(value) ? value[0] : value;
}

async function readSqlBody(req: IncomingMessage): Promise<string> {
  const body = await readBytes(req);
  const encoding = req.headers['content-encoding'] ?? 'identity';
  if (encoding === 'gzip') return gunzipSync(body, { maxOutputLength: SQL_BYTES_MAX }).toString('utf8');
  if (encoding === 'identity') return body.toString('utf8');
  throw new EngineError(48, 'NOT_IMPLEMENTED', `Content-Encoding ${encoding} of a query is not supported.`);
}

async function readForm(req: IncomingMessage): Promise<[string, string][]> {
  const body = new Uint8Array(await readBytes(req));
  const form = await new Response(body, {
    headers: { 'content-type': headerOf(req, 'content-type') ?? '' },
  }).formData();
  return [...form].map(([name, value]) => {
    if (typeof value === 'string') return [name, value];
    throw new EngineError(48, 'NOT_IMPLEMENTED', 'External tables are not supported.');
  });
}

async function readBytes(req: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of req as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > SQL_BYTES_MAX)
      throw new EngineError(62, 'SYNTAX_ERROR', `Query is longer than ${SQL_BYTES_MAX} bytes.`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

class ByteCounter extends Transform {
  bytes = 0;
  readonly #bytesMax: number;

  constructor(bytesMax: number) {
    super();
    this.#bytesMax = bytesMax;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.bytes += chunk.length;
    if (this.bytes <= this.#bytesMax) done(null, chunk);
    else done(new EngineError(242, 'TOO_LARGE_STRING_SIZE', `Body is longer than ${this.#bytesMax} bytes.`));
  }
}
