import { readFileSync, writeFileSync } from 'node:fs';
import { brotliCompressSync, constants, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { judge } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess, Tenant } from './support/rig.ts';

const MIB = 1024 ** 2;
const GROWTH_BYTES_MAX = 50 * MIB;
const AT_ONCE = 5;
const WARM_ROWS = 20_000;

let rig: Rig;
let api: ApiProcess;
let tenant: Tenant;

beforeAll(async () => {
  rig = await Rig.open({ shards: 1 });
  const [first] = await rig.createTenants(1);
  if (first === undefined) throw new RangeError('expected a tenant');
  tenant = first;
  rig.startWorker();
  api = await rig.startApi();
});
afterAll(async () => rig[Symbol.asyncDispose]());

/** Bodies that grow to many times the largest that is taken: small ones, and ones too large to inflate at once. */
const zeros = Buffer.alloc(300 * MIB);
const quick = { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } };
const BOMBS = [
  { encoding: 'gzip', body: gzipSync(zeros.subarray(0, 20 * MIB)) },
  { encoding: 'deflate', body: deflateSync(zeros.subarray(0, 20 * MIB)) },
  { encoding: 'br', body: brotliCompressSync(zeros.subarray(0, 20 * MIB), quick) },
  { encoding: 'zstd', body: zstdCompressSync(zeros.subarray(0, 20 * MIB)) },
  { encoding: 'gzip', body: gzipSync(zeros) },
  { encoding: 'deflate', body: deflateSync(zeros) },
];

async function sendBomb({ encoding, body }: (typeof BOMBS)[number]): Promise<number> {
  const answer = await fetch(`${api.url}/api/v1/ingest`, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      'Content-Encoding': encoding,
      'X-API-Key': tenant.apiKey,
    },
    body,
  });
  await answer.body?.cancel();
  return answer.status;
}

async function sendAll(times: number): Promise<Set<number>> {
  const sent = Array.from({ length: times }, async () => Promise.all(BOMBS.map(sendBomb)));
  return new Set((await Promise.all(sent)).flat());
}

/** The resident memory of the API now, and its greatest since `forgetPeak`. */
function readMemory(): { nowBytes: number; peakBytes: number } {
  const status = readFileSync(`/proc/${api.child.pid}/status`, 'utf8');
  const read = (name: string): number =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1] ?? Number.NaN) * 1024;
  return { nowBytes: read('VmRSS'), peakBytes: read('VmHWM') };
}

/** See proc(5), clear_refs. */
function forgetPeak(): void {
  writeFileSync(`/proc/${api.child.pid}/clear_refs`, '5');
}

describe('F43: bombs in every encoding, many at once', () => {
  it('get 413, cost less than 50 MB of memory at any moment, and others are served meanwhile', async () => {
    const oracle = new Oracle({ run: 'f43', tenants: [tenant], url: api.url });
    await using load = oracle.startLoad({ concurrency: 2, rowsPerRequest: 100, pauseMs: 5, isKeyed: true });
    expect(await sendAll(1)).toEqual(new Set([413]));
    await waitFor('the API to be warm', () => oracle.acknowledgedRows > WARM_ROWS);
    forgetPeak();
    const before = readMemory().nowBytes;
    expect(await sendAll(AT_ONCE)).toEqual(new Set([413]));
    const growth = readMemory().peakBytes - before;
    process.stdout.write(
      `F43: ${(growth / MIB).toFixed(0)} MiB more at the peak of ${AT_ONCE * BOMBS.length} bombs\n`,
    );
    expect(growth).toBeLessThan(GROWTH_BYTES_MAX);
    await load.stop();
    await rig.waitForRest();
    expect([...oracle.statuses.keys()]).toEqual([200]);
    expect((await judge(rig, oracle, api.url)).faults).toEqual([]);
  });
});
