import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { readConnection, wantsColour } from './config.ts';
import { listSources, serviceOfPath } from './line-source.ts';

const dirs: string[] = [];
afterEach(() => {
  for (const dir of dirs.splice(0)) rmSync(dir, { recursive: true });
});

function createDataDir(credentials: string): string {
  const dir = mkdtempSync(join(tmpdir(), 'logpond-cli-'));
  dirs.push(dir);
  writeFileSync(join(dir, 'credentials.json'), credentials);
  return dir;
}

it('the environment comes before the file, and an address never gets the key of the file', () => {
  const dir = createDataDir('{"baseUrl":"http://127.0.0.1:8080/api/v1","apiKey":"lp_file"}');
  expect(readConnection({ LOGPOND_DATA_DIR: dir })).toEqual({
    baseUrl: 'http://127.0.0.1:8080/api/v1',
    apiKey: 'lp_file',
  });
  const env = { LOGPOND_DATA_DIR: dir, LOGPOND_URL: 'https://logs.example/', LOGPOND_API_KEY: 'lp_env' };
  expect(readConnection(env)).toEqual({ baseUrl: 'https://logs.example/api/v1', apiKey: 'lp_env' });
  expect(() => readConnection({ LOGPOND_DATA_DIR: dir, LOGPOND_URL: 'https://logs.example' })).toThrow(
    'LOGPOND_API_KEY',
  );
});

it('without credentials, or with damaged ones, one sentence says what to do', () => {
  expect(() => readConnection({ LOGPOND_DATA_DIR: join(tmpdir(), 'logpond-none') })).toThrow(
    'run npm start first',
  );
  expect(() => readConnection({ LOGPOND_DATA_DIR: createDataDir('{"baseUrl":') })).toThrow(
    'expected JSON with baseUrl and apiKey',
  );
  expect(() => readConnection({ LOGPOND_URL: 'ftp://x', LOGPOND_API_KEY: 'lp_x' })).toThrow(
    'expected http(s)',
  );
});

it('colours need a terminal and no NO_COLOR', () => {
  expect(wantsColour({ isTTY: true }, {})).toBe(true);
  expect(wantsColour({ isTTY: true }, { NO_COLOR: '1' })).toBe(false);
  expect(wantsColour({}, {})).toBe(false);
});

it('a file that is gone is said and the others are still sent; none left is a usage error', () => {
  const dir = createDataDir('{}');
  const skipped: string[] = [];
  const paths = [join(dir, 'gone.log'), dir, join(dir, 'credentials.json')];
  expect(listSources(paths, (sentence) => skipped.push(sentence)).map((source) => source.service)).toEqual([
    'credentials',
  ]);
  expect(skipped).toHaveLength(2);
  expect(() => listSources([dir], () => undefined)).toThrow('nothing to read');
});

it.each([
  ['/var/log/dpkg.log', 'dpkg'],
  ['/var/log/dpkg.log.2.gz', 'dpkg'],
  ['/var/log/apt/history.log', 'apt-history'],
  ['/var/log/syslog', 'syslog'],
  ['/root/.npm/_logs/2026-11-21T13_33_35_291Z-debug-0.log', 'npm'],
  ['app-20261121.json', 'app'],
  ['.log', '.log'],
])('the service of %s is %s', (path, service) => {
  expect(serviceOfPath(path)).toBe(service);
});
