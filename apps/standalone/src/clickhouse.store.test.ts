import { once } from 'node:events';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { spawnClickHouse } from './clickhouse-process.ts';

const PROJECT_A = '00000000-0000-4000-8000-00000000000a';
const PROJECT_B = '00000000-0000-4000-8000-00000000000b';
const INTERNAL = { log_comment: '#internal' };

let dataDir = '';
let server: Awaited<ReturnType<typeof spawnClickHouse>>;

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'logpond-clickhouse-'));
  server = await spawnClickHouse({ dataDir });
  await run(`CREATE TABLE logs (project_id UUID, seq UInt64, message String) ENGINE = MergeTree
    ORDER BY (project_id, seq) SETTINGS non_replicated_deduplication_window = 100, fsync_after_insert = 1`);
  await run(
    `CREATE TABLE logs_hourly (project_id UUID, entries UInt64) ENGINE = SummingMergeTree ORDER BY project_id`,
  );
  await run(`CREATE MATERIALIZED VIEW logs_hourly_view TO logs_hourly AS
    SELECT project_id, count() AS entries FROM logs GROUP BY project_id`);
});

afterAll(async () => {
  await server.stop();
  await rm(dataDir, { recursive: true, force: true });
});

function authorization(password = server.password): string {
  return `Basic ${Buffer.from(`${server.user}:${password}`).toString('base64')}`;
}

async function post(
  query: string,
  body: string | Uint8Array<ArrayBuffer>,
  params = {},
  headers = {},
): Promise<Response> {
  const search = new URLSearchParams({ ...(query ? { query } : {}), ...params });
  return fetch(`${server.url}/?${search.toString()}`, {
    method: 'POST',
    body,
    headers: { Authorization: authorization(), ...headers },
  });
}

async function run(sql: string, params = {}): Promise<string> {
  const answer = await post('', sql, params);
  const text = await answer.text();
  if (!answer.ok) throw new Error(text);
  return text.trim();
}

async function insert(seqs: number[], project: string, params = {}, headers = {}): Promise<Response> {
  const lines = seqs
    .map((seq) => JSON.stringify({ project_id: project, seq, message: `m${seq}` }))
    .join('\n');
  const isGzip = JSON.stringify(headers).includes('gzip');
  return post(
    'INSERT INTO logs (project_id, seq, message) SETTINGS insert_deduplicate = 1 FORMAT JSONEachRow',
    isGzip ? new Uint8Array(gzipSync(lines)) : lines,
    params,
    headers,
  );
}

async function countOf(project: string): Promise<string> {
  return run('SELECT count() FROM logs', { log_comment: project });
}

describe('inserting', () => {
  it('an insert repeated with its token is stored once, other bytes under a new token are stored too', async () => {
    const project = '00000000-0000-4000-8000-0000000000a1';
    for (const token of ['0:1:1-3', '0:1:1-3', '0:1:3-5']) {
      const answer = await insert([1, 2], project, { insert_deduplication_token: token });
      expect(answer.status).toBe(200);
      await answer.text();
    }
    expect(await countOf(project)).toBe('4');
  });

  it('a body is inflated by its Content-Encoding and survives newlines and binary data', async () => {
    const project = '00000000-0000-4000-8000-0000000000a2';
    const answer = await insert([10, 11, 12], project, {}, { 'Content-Encoding': 'gzip' });
    expect(answer.status).toBe(200);
    await answer.text();
    const bytes = Buffer.concat([
      Buffer.from('0140000000000000', 'hex'), // first half of a UUID, little endian
      Buffer.from('0a0a0d0a000000ff', 'hex'),
      Buffer.from('0a00000000000000', 'hex'),
      Buffer.from([3, 0x0a, 0x00, 0x0a]),
    ]);
    const binary = await post('INSERT INTO logs FORMAT RowBinary', new Uint8Array(bytes));
    expect([binary.status, await binary.text()]).toEqual([200, '']);
    expect(await countOf(project)).toBe('3');
    expect(await run("SELECT hex(message) FROM logs WHERE seq = 10 AND message LIKE '%\\n%'", INTERNAL)).toBe(
      '0A000A',
    );
  });

  it('an insert whose client leaves while it runs is stored all the same', async () => {
    await run(`CREATE TABLE slow (seq UInt64, pause UInt8 MATERIALIZED sleepEachRow(0.02))
      ENGINE = MergeTree ORDER BY seq`);
    const params = new URLSearchParams({ query: 'INSERT INTO slow (seq) FORMAT CSV', query_id: 'left' });
    const controller = new AbortController();
    const answer = fetch(`${server.url}/?${params.toString()}`, {
      method: 'POST',
      body: Array.from({ length: 25 }, (_, seq) => seq).join('\n'),
      headers: { Authorization: authorization() },
      signal: controller.signal,
    });
    answer.catch(() => {});
    const running = "SELECT count() FROM system.processes WHERE query LIKE '/*left*/%'";
    await vi.waitFor(async () => expect(await run(running)).toBe('1'), { timeout: 5_000, interval: 20 });
    controller.abort();
    await vi.waitFor(async () => expect(await run('SELECT count() FROM slow')).toBe('25'), {
      timeout: 5_000,
    });
    await vi.waitFor(async () => expect(await readdir(join(dataDir, 'spool'))).toEqual([]));
  });

  it('rows acknowledged before kill -9 are there after a restart on the same directory', async () => {
    const project = '00000000-0000-4000-8000-0000000000a4';
    const answer = await insert([1, 2, 3], project);
    expect(answer.status).toBe(200);
    const exited = once(server.child, 'exit');
    server.child.kill('SIGKILL');
    await exited;
    server = await spawnClickHouse({ dataDir, port: server.port, password: server.password });
    expect(await countOf(project)).toBe('3');
  });
});

describe('the row policy', () => {
  it('shows a project its own rows only, nothing without a tag, all of them to #internal', async () => {
    await (await insert([1, 2], PROJECT_A)).text();
    await (await insert([1], PROJECT_B)).text();
    expect(await countOf(PROJECT_A)).toBe('2');
    expect(await countOf(PROJECT_B)).toBe('1');
    expect(await run('SELECT count() FROM logs')).toBe('0');
    expect(await run('SELECT sum(entries) FROM logs_hourly', { log_comment: PROJECT_A })).toBe('2');
    expect(await run('SELECT sum(entries) FROM logs_hourly')).toBe('0');
    const two = `project_id IN ('${PROJECT_A}', '${PROJECT_B}')`;
    expect(await run(`SELECT count() FROM logs WHERE ${two}`, INTERNAL)).toBe('3');
  });

  it('a tag cannot be changed once readonly is set', async () => {
    const answer = await post('', "SELECT count() FROM logs SETTINGS log_comment = '#internal'", {
      readonly: 1,
      log_comment: PROJECT_A,
    });
    expect(answer.status).toBe(403);
    expect(answer.headers.get('x-clickhouse-exception-code')).toBe('164');
  });
});

describe('refusals', () => {
  it.each([
    ["SELECT * FROM file('/etc/hostname', 'LineAsString')", '497', 403],
    ["SELECT * FROM url('http://127.0.0.1:9/', 'LineAsString')", '497', 403],
    ["SELECT * FROM remote('127.0.0.1:9', 'system.one')", '497', 403],
    ["SELECT * FROM s3('http://127.0.0.1:9/bucket/x.csv', 'CSV', 'a String')", '497', 403],
    ["CREATE TABLE f (a String) ENGINE = File(CSV, '/etc/hostname')", '497', 403],
    ['CREATE USER other', '497', 403],
    ["SELECT * FROM executable('x.sh', 'CSV', 'a String')", '1', 500],
    ["SELECT 1 INTO OUTFILE 'x'", '48', 501],
    ["INSERT INTO logs FROM INFILE '/etc/hostname' FORMAT LineAsString", '48', 501],
    ['SELECT * FROM absent', '60', 404],
    ['SELEC 1', '62', 400],
    ["SELECT match('a', '(')", '427', 400],
    ['', '62', 400],
  ])('%s is answered with code %s and status %i', async (sql, code, status) => {
    const answer = await post('', sql);
    expect([answer.headers.get('x-clickhouse-exception-code'), answer.status]).toEqual([code, status]);
    expect(await answer.text()).toMatch(new RegExp(`^Code: ${code}\\. DB::`));
  });

  it('a wrong password is 401 with code 516', async () => {
    const answer = await post('', 'SELECT 1', {}, { Authorization: authorization('wrong') });
    expect([answer.status, answer.headers.get('x-clickhouse-exception-code')]).toEqual([401, '516']);
  });

  it('a GET changes nothing', async () => {
    const params = new URLSearchParams({ query: 'CREATE TABLE t (a Int8) ENGINE = Memory' });
    const answer = await fetch(`${server.url}/?${params.toString()}`, {
      headers: { Authorization: authorization() },
    });
    expect(answer.headers.get('x-clickhouse-exception-code')).toBe('164');
  });

  it('words in string literals are not taken for INFILE', async () => {
    expect(await run("SELECT 'from infile' -- outfile")).toBe('from infile');
  });
});

describe('asking', () => {
  it('parameters keep every character, and settings do not leak into the next request', async () => {
    const value = String.raw`a'b"c\d` + '\u00e9\u{1f600}';
    // As the official client sends it: backslash escapes of the TSV format.
    const answer = await run('SELECT {v:String} AS v, length({v:String}) FORMAT JSONEachRow', {
      param_v: `${value.replaceAll('\\', '\\\\')}\\t\\n`,
    });
    expect(JSON.parse(answer)).toMatchObject({ v: `${value}\t\n` });
    expect(await run("SELECT getSetting('max_threads') = 1", { max_threads: 1 })).toBe('1');
    expect(await run("SELECT getSetting('max_threads') = 1")).toBe('0');
  });

  it('row formats stream whole, gzip when asked', async () => {
    const sql = 'SELECT number FROM numbers(300000) FORMAT JSONEachRow';
    const answer = await post('', sql, { enable_http_compression: 1 }, { 'Accept-Encoding': 'gzip' });
    expect(answer.headers.get('content-encoding')).toBe('gzip');
    expect((await answer.text()).trim().split('\n')).toHaveLength(300_000);
  });

  it('a failure after the first rows cuts the connection, so that a short result is never taken for whole', async () => {
    const sql = "SELECT throwIf(number = 900000, 'late') FROM numbers(1000000) FORMAT TSV";
    const answer = await post('', sql, { max_block_size: 1000, max_threads: 1 });
    expect(answer.status).toBe(200);
    await expect(answer.text()).rejects.toThrow(/terminated/);
  });

  it('a SELECT whose client leaves is stopped', async () => {
    const queryId = 'left-by-its-client';
    const running = `SELECT count() FROM system.processes WHERE query LIKE '/*${queryId}*/%'`;
    const controller = new AbortController();
    const answer = fetch(`${server.url}/?query_id=${queryId}`, {
      method: 'POST',
      body: 'SELECT count() FROM numbers(100000000000) WHERE sipHash64(number) = 1 SETTINGS max_threads = 1 FORMAT JSON',
      headers: { Authorization: authorization() },
      signal: controller.signal,
    });
    answer.catch(() => {});
    await vi.waitFor(async () => expect(await run(running)).toBe('1'), { timeout: 5_000, interval: 20 });
    controller.abort();
    await vi.waitFor(async () => expect(await run(running)).toBe('0'), { timeout: 5_000, interval: 20 });
  });
});

describe('the data directory', () => {
  it('left-over spooled bodies are removed at the next start', async () => {
    await server.stop();
    await writeFile(join(dataDir, 'spool', 'left-over'), 'x');
    server = await spawnClickHouse({ dataDir, port: server.port, password: server.password });
    expect(await readdir(join(dataDir, 'spool'))).toEqual([]);
  });
});
