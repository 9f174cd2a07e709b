import { ApiError } from '@logpond/schema/api-error';
import { describe, expect, it } from 'vitest';
import { IngestDoor } from './ingest-door.ts';

const MB = 1024 * 1024;

function refusalOf(act: () => void): { code: string; retryAfterS: number | undefined } | undefined {
  try {
    act();
    return undefined;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { code: error.code, retryAfterS: error.retryAfterS };
  }
}

describe('a project above its fair share of the streams', () => {
  it('gets 429 BACKPRESSURE with the seconds of the stream ± 20 %, the others of its block come in', () => {
    const door = new IngestDoor(() => 0);
    door.learn(['flooder', 'quiet'], new Map([['flooder', 100]]));
    const refusal = refusalOf(() => door.check('flooder'));
    expect(refusal?.code).toBe('BACKPRESSURE');
    expect(refusal?.retryAfterS).toBeGreaterThanOrEqual(80);
    expect(refusal?.retryAfterS).toBeLessThanOrEqual(120);
    expect(refusalOf(() => door.check('quiet'))).toBeUndefined();
  });

  it('may send one request after 1 s; its news lets the rest in or keeps them out', () => {
    let nowMs = 0;
    const door = new IngestDoor(() => nowMs);
    door.learn(['p'], new Map([['p', 100]]));
    nowMs = 999;
    expect(refusalOf(() => door.check('p'))).toBeDefined();
    nowMs = 1_000;
    expect(refusalOf(() => door.check('p'))).toBeUndefined();
    expect(refusalOf(() => door.check('p'))).toBeDefined();
    door.learn(['p'], new Map([['p', 50]]));
    nowMs = 1_999;
    expect(refusalOf(() => door.check('p'))).toBeDefined();
    nowMs = 2_000;
    expect(refusalOf(() => door.check('p'))).toBeUndefined();
    door.learn(['p', 'q'], new Map());
    expect(refusalOf(() => door.check('p'))).toBeUndefined();
  });

  it('is not shut out for ever by a request that brought no news', () => {
    let nowMs = 0;
    const door = new IngestDoor(() => nowMs);
    door.learn(['p'], new Map([['p', 100]]));
    for (nowMs = 1_000; nowMs <= 5_000; nowMs += 1_000) {
      expect(refusalOf(() => door.check('p'))).toBeUndefined();
      expect(refusalOf(() => door.check('p'))).toBeDefined();
    }
  });

  it('is remembered among at most 10,000', () => {
    const door = new IngestDoor(() => 0);
    const crowded = new Map(Array.from({ length: 10_001 }, (_, n) => [`p${n}`, 100]));
    door.learn(crowded.keys(), crowded);
    expect(refusalOf(() => door.check('p0'))).toBeUndefined();
    expect(refusalOf(() => door.check('p1'))).toBeDefined();
  });
});

describe('what waits in this process', () => {
  it('one project alone may have half of the 128 MB waiting, beside seven others 8 MB', () => {
    const door = new IngestDoor();
    for (let n = 0; n < 64; n += 1) door.enter('flooder', MB);
    expect(refusalOf(() => door.enter('flooder', MB))?.code).toBe('BACKPRESSURE');
    expect(refusalOf(() => door.check('flooder'))?.code).toBe('BACKPRESSURE');
    for (let n = 0; n < 57; n += 1) door.leave('flooder', MB);
    for (let n = 0; n < 7; n += 1) door.enter(`other${n}`, 1);
    door.enter('flooder', MB);
    expect(refusalOf(() => door.enter('flooder', 1))?.code).toBe('BACKPRESSURE');
    expect(refusalOf(() => door.check('other0'))).toBeUndefined();
  });

  it('a flooder leaves room for every other project, and one body of any size comes in when it is the only one', () => {
    const door = new IngestDoor();
    while (refusalOf(() => door.enter('flooder', MB)) === undefined);
    expect(refusalOf(() => door.enter('other', 60 * MB))).toBeUndefined();
  });

  it('of all together is at most 128 MB, then everybody gets 503, until somebody is answered', () => {
    const door = new IngestDoor();
    for (let n = 0; n < 16; n += 1) door.enter(`p${n}`, 8 * MB);
    expect(refusalOf(() => door.enter('q', 1))?.code).toBe('UNAVAILABLE');
    door.leave('p0', 8 * MB);
    expect(refusalOf(() => door.enter('q', 1))).toBeUndefined();
  });
});
