import { appendFileSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { ChildLog } from './child-log.ts';

const directory = mkdtempSync(join(tmpdir(), 'logpond-child-log-'));

afterAll(() => rmSync(directory, { recursive: true, force: true }));

it('a log above 10 MB is moved to one older file, and writers go on in the emptied one', () => {
  const path = join(directory, 'a.log');
  using log = new ChildLog(path);
  appendFileSync(path, 'x'.repeat(10 * 1024 * 1024));
  log.rotate();
  expect(log.size).toBe(10 * 1024 * 1024);
  appendFileSync(path, 'y');
  log.rotate();
  expect(log.size).toBe(0);
  expect(statSync(`${path}.1`).size).toBe(10 * 1024 * 1024 + 1);
  appendFileSync(log.fd, 'after\n');
  expect(log.readFrom(10 * 1024 * 1024)).toBe('after');
});

it('what was written since a position is read back, at most its last 4 KB', () => {
  const path = join(directory, 'b.log');
  using log = new ChildLog(path);
  appendFileSync(path, 'before\n');
  const position = log.size;
  appendFileSync(path, 'the reason\n');
  expect(log.readFrom(position)).toBe('the reason');
  appendFileSync(path, 'z'.repeat(10_000));
  expect(log.readFrom(position)).toBe('z'.repeat(4096));
});
