import { createHash, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { constants, createGzip } from 'node:zlib';
import { describeFailure, EngineError } from './clickhouse-error.ts';
import { ClickHouseEngine } from './clickhouse-engine.ts';
import { ClickHouseGate } from './clickhouse-gate.ts';
import { writeEngineFiles } from './clickhouse-files.ts';
import { readStatement } from './clickhouse-request.ts';
import type { Statement } from './clickhouse-request.ts';
import { syncRecentFiles } from './sync-recent-files.ts';

export type ClickHouseOptions = {
  dataDir: string;
  /** On loopback; 0 takes a free one. */
  port: number;
  user: string;
  password: string;
  /** Size of libuv's pool: each running statement holds one thread, and KILL QUERY needs one too. */
  threads: number;
};

/** How long a statement may wait for a free slot. */
const SLOT_WAIT_MS_MAX = 30_000;
const INSERT_SLOTS = 2;
const SPARE_THREADS = 2;
/** How long `close` lets running inserts finish. */
const CLOSE_WAIT_MS_MAX = 15_000;

/** Formats whose blocks, one after the other, are one valid document. */
const STREAMABLE_FORMAT =
  /^(?:JSONEachRow|JSONCompactEachRow|JSONStringsEachRow|JSONLines|NDJSON|TabSeparated|TSV|TabSeparatedRaw|TSVRaw|CSV|Native|RowBinary|LineAsString)$/;

/**
 * Serves ClickHouse's HTTP interface on 127.0.0.1 over the embedded engine, for the official client unmodified.
 * One engine per process and one process per data directory.
 */
export async function startClickHouse(
  options: ClickHouseOptions,
): Promise<{ url: string; close: () => Promise<void> }> {
  const files = await writeEngineFiles(options.dataDir);
  // Left over from a kill: their inserts were never acknowledged.
  await rm(files.spoolDir, { recursive: true, force: true });
  await mkdir(files.spoolDir, { recursive: true, mode: 0o700 });
  syncRecentFiles(options.dataDir);
  const engine = new ClickHouseEngine(files.engineDir, files.configFile);
  const front = new ClickHouseFront(engine, files.spoolDir, options);
  const port = await front.listen(options.port);
  return { url: `http://127.0.0.1:${port}`, close: () => front.close() };
}

const NO_COUNTS = {
  read_rows: 0,
  read_bytes: 0,
  written_rows: 0,
  written_bytes: 0,
  total_rows_to_read: 0,
  result_rows: 0,
  result_bytes: 0,
};

class ClickHouseFront {
  readonly #engine: ClickHouseEngine;
  readonly #spoolDir: string;
  readonly #credentialsDigest: Buffer;
  readonly #inserts: ClickHouseGate;
  readonly #others: ClickHouseGate;
  readonly #server: Server;
  readonly #running = new Set<Promise<void>>();

  constructor(engine: ClickHouseEngine, spoolDir: string, options: ClickHouseOptions) {
    this.#engine = engine;
    this.#spoolDir = spoolDir;
    this.#credentialsDigest = digestOf(options.user, options.password);
    this.#inserts = new ClickHouseGate(INSERT_SLOTS, SLOT_WAIT_MS_MAX);
    // Searches never take the threads that inserts need.
    this.#others = new ClickHouseGate(
      Math.max(1, options.threads - INSERT_SLOTS - SPARE_THREADS),
      SLOT_WAIT_MS_MAX,
    );
    // requestTimeout 0: a large insert may take its time; the client has its own timeout.
    this.#server = createServer({ keepAliveTimeout: 30_000, requestTimeout: 0 }, (req, res) => {
      const work = this.#answer(req, res).finally(() => this.#running.delete(work));
      this.#running.add(work);
    });
  }

  async listen(port: number): Promise<number> {
    this.#server.listen(port, '127.0.0.1');
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  /** Takes no more requests, lets the running ones finish for up to 15 s, then closes the engine. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
    });
    this.#server.closeIdleConnections();
    const deadline = Promise.withResolvers<void>();
    const timer = setTimeout(deadline.resolve, CLOSE_WAIT_MS_MAX);
    await Promise.race([Promise.allSettled(this.#running), deadline.promise]);
    clearTimeout(timer);
    this.#server.closeAllConnections();
    await closed;
    this.#engine[Symbol.dispose]();
  }

  async #answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    try {
      const path = (req.url ?? '/').split('?')[0];
      if (path === '/ping' || path === '/replicas_status') {
        res.writeHead(200, { 'Content-Type': 'text/plain' }).end('Ok.\n');
        return;
      }
      this.#checkCredentials(req);
      const statement = await readStatement(req, this.#spoolDir);
      try {
        await this.#execute(statement, req, res);
      } finally {
        if (statement.spoolFile !== undefined) await rm(statement.spoolFile, { force: true });
      }
    } catch (error) {
      this.#fail(req, res, error);
    }
  }

  #checkCredentials(req: IncomingMessage): void {
    const { user, password } = readCredentials(req);
    if (!timingSafeEqual(digestOf(user, password), this.#credentialsDigest)) {
      throw new EngineError(516, 'AUTHENTICATION_FAILED', `${user}: Authentication failed.`);
    }
  }

  #fail(req: IncomingMessage, res: ServerResponse, error: unknown): void {
    if (res.headersSent) {
      // A reset connection, never a silently short result.
      res.destroy();
      return;
    }
    const failure = describeFailure(error, this.#engine.version);
    // What was not read of the request would be taken for the next one.
    if (!req.complete) res.setHeader('Connection', 'close');
    res
      .writeHead(failure.status, {
        'Content-Type': 'text/plain; charset=UTF-8',
        'X-ClickHouse-Exception-Code': String(failure.code),
      })
      .end(failure.body);
  }

  async #execute(statement: Statement, req: IncomingMessage, res: ServerResponse): Promise<void> {
    if (statement.kind === 'insert') {
      await this.#inserts.run(() => this.#insert(statement, res));
      return;
    }
    let isOver = false;
    const isGone = (): boolean => res.closed && !res.writableFinished;
    res.once('close', () => {
      if (isOver || statement.kind !== 'select') return;
      // Best effort: when it fails, the statement's own max_execution_time ends it.
      this.#engine.kill(statement.context.queryId).catch(() => {});
    });
    try {
      await this.#others.run(async () => {
        if (isGone()) return;
        if (statement.kind === 'select' && STREAMABLE_FORMAT.test(statement.outputFormat)) {
          await this.#stream(statement, req, res, isGone);
        } else await this.#buffer(statement, req, res);
        isOver = true;
      });
    } finally {
      isOver = true;
    }
  }

  async #insert(statement: Statement, res: ServerResponse): Promise<void> {
    const startedAt = process.hrtime.bigint();
    let written = { rowsRead: 0, bytesRead: 0 };
    if (statement.spoolFile !== undefined) {
      written = await this.#engine.run(statement.sql, statement.context, statement.outputFormat);
    }
    const rows = { written_rows: written.rowsRead, written_bytes: written.bytesRead };
    res.writeHead(200, headersOf(statement, startedAt, { ...readOf(written), ...rows })).end();
  }

  async #buffer(statement: Statement, req: IncomingMessage, res: ServerResponse): Promise<void> {
    const startedAt = process.hrtime.bigint();
    const result = await this.#engine.run(statement.sql, statement.context, statement.outputFormat);
    const sink = startBody(statement, req, res, headersOf(statement, startedAt, readOf(result)));
    sink.end(Buffer.from(result.bytes()));
  }

  /** The first block decides between an error status and 200. */
  async #stream(
    statement: Statement,
    req: IncomingMessage,
    res: ServerResponse,
    isGone: () => boolean,
  ): Promise<void> {
    const startedAt = process.hrtime.bigint();
    let sink: NodeJS.WritableStream | undefined;
    for await (const block of this.#engine.stream(statement.sql, statement.context, statement.outputFormat)) {
      if (isGone()) return;
      sink ??= startBody(statement, req, res, headersOf(statement, startedAt, {}));
      if (!sink.write(Buffer.from(block))) await waitForRoom(sink, res);
    }
    sink ??= startBody(statement, req, res, headersOf(statement, startedAt, {}));
    sink.end();
  }
}

async function waitForRoom(sink: NodeJS.WritableStream, res: ServerResponse): Promise<void> {
  const controller = new AbortController();
  const { signal } = controller;
  await Promise.race([once(sink, 'drain', { signal }), once(res, 'close', { signal })]).finally(() =>
    controller.abort(),
  );
}

function startBody(
  statement: Statement,
  req: IncomingMessage,
  res: ServerResponse,
  headers: Record<string, string>,
): NodeJS.WritableStream {
  const isAsked = statement.context.settings.some(
    ([name, value]) => name === 'enable_http_compression' && value === '1',
  );
  if (!isAsked || !/\bgzip\b/.test(String(req.headers['accept-encoding'] ?? ''))) {
    return res.writeHead(200, headers);
  }
  res.writeHead(200, { ...headers, 'Content-Encoding': 'gzip' });
  const gzip = createGzip({ level: 1, flush: constants.Z_NO_FLUSH });
  gzip.pipe(res);
  return gzip;
}

function readOf(result: { rowsRead: number; bytesRead: number }): Record<string, number> {
  return { read_rows: result.rowsRead, read_bytes: result.bytesRead };
}

function headersOf(
  statement: Statement,
  startedAt: bigint,
  counts: Record<string, number>,
): Record<string, string> {
  const elapsed = { elapsed_ns: process.hrtime.bigint() - startedAt };
  const summary = Object.entries({ ...NO_COUNTS, ...counts, ...elapsed });
  const isJson = statement.outputFormat.startsWith('JSON');
  return {
    'Content-Type': isJson ? 'application/json; charset=UTF-8' : 'text/plain; charset=UTF-8',
    'X-ClickHouse-Format': statement.outputFormat,
    'X-ClickHouse-Query-Id': statement.context.queryId.replaceAll(/[^\x21-\x7e]/g, '_'),
    'X-ClickHouse-Server-Display-Name': 'logpond-standalone',
    'X-ClickHouse-Timezone': 'UTC',
    // Counts travel as strings, as a real server sends them.
    'X-ClickHouse-Summary': JSON.stringify(
      Object.fromEntries(summary.map(([name, count]) => [name, String(count)])),
    ),
  };
}

function readCredentials(req: IncomingMessage): { user: string; password: string } {
  const basic = /^Basic (.+)$/.exec(req.headers.authorization ?? '')?.[1];
  if (basic !== undefined) {
    const text = Buffer.from(basic, 'base64').toString('utf8');
    const colon = text.indexOf(':');
    return { user: text.slice(0, colon), password: text.slice(colon + 1) };
  }
  const params = new URL(req.url ?? '/', 'http://front').searchParams;
  return {
    user: String(req.headers['x-clickhouse-user'] ?? params.get('user') ?? 'default'),
    password: String(req.headers['x-clickhouse-key'] ?? params.get('password') ?? ''),
  };
}

/** Digests have one length, so that comparing them takes one time. */
function digestOf(user: string, password: string): Buffer {
  return createHash('sha256')
    .update(JSON.stringify([user, password]))
    .digest();
}
